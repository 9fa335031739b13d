"""A wrong or dead address: what is logged, how often, and which error the waiting call gets.

Each kind of wrong address is a real socket on loopback; how often is tested on brokers in memory.
"""

from __future__ import annotations

import logging
import random
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ConnectionFailedError, ConnectionProblem, UnreachableError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.feedback.connection_log import INTERVAL_MS
from holdfast_log.clients.feedback.events import ConnectionFailed, Event
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

Serve = Callable[[socket.socket], object]


@contextmanager
def server(serve: Serve) -> Iterator[int]:
    """A server on loopback that calls `serve` with each connection; yields its port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def accept() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.settimeout(30)
                    try:
                        serve(peer)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def problem_with(
    address: str, properties: dict[str, Any] | None = None, but: ConnectionProblem | None = None
) -> ConnectionFailedError:
    """The error of the first connection to this address that fails, but for those with the problem `but`."""
    failures: list[Event] = []
    given = {"bootstrap.timeout.ms": 60_000, **(properties or {})}

    def errors() -> list[ConnectionFailedError]:
        found: list[ConnectionFailedError] = []
        for each in failures:
            assert isinstance(each, ConnectionFailed)
            assert isinstance(each.error, ConnectionFailedError)
            found += [each.error] * (each.error.problem is not but)
        return found

    with Connection(address, given, on_event=failures.append) as connection:
        connection.poll(0)
        while not (found := errors()):
            connection.poll(1000)
    error = found[0]
    assert str(error).startswith(f"{address}: ")
    return error


@contextmanager
def unused_port() -> Iterator[int]:
    """A port at which nobody listens, and which no other program can take meanwhile."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class TestKindsOfWrongAddresses:
    def test_nobody_listens(self) -> None:
        with unused_port() as port:
            error = problem_with(f"127.0.0.1:{port}")
        assert error.problem is ConnectionProblem.REFUSED
        assert "Connection refused" in str(error) and "check that the broker runs" in str(error)

    def test_the_name_has_no_address(self) -> None:
        error = problem_with("no-such-host.invalid:9092")
        assert error.problem is ConnectionProblem.NAME_NOT_FOUND
        assert "the name no-such-host.invalid cannot be resolved" in str(error)

    def test_a_web_server(self) -> None:
        with server(lambda peer: (peer.recv(1), peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))) as port:
            error = problem_with(f"127.0.0.1:{port}")
        assert error.problem is ConnectionProblem.NOT_KAFKA and "a web server (HTTP)" in str(error)

    def test_a_server_that_talks_nonsense(self) -> None:
        with server(lambda peer: (peer.recv(1), peer.sendall(b"\xff\xffwhat?"))) as port:
            error = problem_with(f"127.0.0.1:{port}")
        assert error.problem is ConnectionProblem.NOT_KAFKA and "what?" in str(error)

    def test_a_server_that_hangs_up(self) -> None:
        with server(lambda peer: peer.recv(1000)) as port:
            error = problem_with(f"127.0.0.1:{port}")
        assert error.problem is ConnectionProblem.CLOSED_EARLY

    def test_a_server_that_is_silent(self) -> None:
        done = threading.Event()
        with server(lambda _: done.wait(60)) as port:
            try:
                error = problem_with(
                    f"127.0.0.1:{port}",
                    {"socket.connection.setup.timeout.ms": 50, "request.timeout.ms": 90},
                    but=ConnectionProblem.UNREACHABLE,  # Of a machine that stands still for 50 ms.
                )
            finally:
                done.set()
        assert error.problem is ConnectionProblem.SILENT and "connected, but no answer" in str(error)

    def test_a_client_without_tls_at_a_port_with_tls_that_answers_with_an_alert(self) -> None:
        """Java's TLS does that."""
        alert = bytes.fromhex("15 03 03 00 02 02 50")
        with server(lambda peer: (peer.recv(1000), peer.sendall(alert))) as port:
            error = problem_with(f"127.0.0.1:{port}")
        assert error.problem is ConnectionProblem.TLS_EXPECTED and "security.protocol=SSL" in str(error)

    def test_a_client_without_tls_at_a_port_with_tls_that_hangs_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """OpenSSL does that: nothing that was received tells it from other servers."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate(tmp_path))
        with server(lambda peer: context.wrap_socket(peer, server_side=True)) as port:
            address = f"127.0.0.1:{port}"
            error = problem_with(address)
            given = {"bootstrap.servers": address, "bootstrap.timeout.ms": 2000}
            with Admin(given) as admin, pytest.raises(UnreachableError) as caught:
                admin.list_topics()
        assert error.problem is ConnectionProblem.CLOSED_EARLY
        advice = "the port may expect TLS (then set security.protocol=SSL)"
        assert advice in str(error) and advice in str(caught.value) and advice in caplog.messages[-1]

    def test_a_client_with_tls_at_a_port_without(self) -> None:
        with server(lambda peer: peer.recv(1000)) as port:
            error = problem_with(f"127.0.0.1:{port}", {"security.protocol": "SSL"})
        assert error.problem is ConnectionProblem.TLS_FAILED and "security.protocol=PLAINTEXT" in str(error)

    def test_a_certificate_that_is_not_trusted(self, tmp_path: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate(tmp_path))
        with server(lambda peer: context.wrap_socket(peer, server_side=True)) as port:
            error = problem_with(f"127.0.0.1:{port}", {"security.protocol": "SSL"})
        assert error.problem is ConnectionProblem.CERTIFICATE and "ssl.truststore.location" in str(error)


def certificate(directory: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl creates the certificate, and is not installed")
    path = directory / "broker.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", directory / "key.pem", "-out", directory / "certificate.pem"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    path.write_text((directory / "key.pem").read_text() + (directory / "certificate.pem").read_text())
    return path


def on(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"properties": {"bootstrap.servers": cluster.bootstrap, **more}, "network": cluster}


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights", 3)
    return cluster


class TestWarnings:
    def test_an_outage_is_one_line_at_once_then_one_in_each_interval_then_its_end(
        self, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = Consumer(rng=random.Random(1), **on(cluster, **{"client.id": "mine"}))
        consumer.add_topic("flights", 0)
        consumer.poll(100)
        assert not caplog.records

        cluster.brokers[1].stop()
        stopped_ms = cluster.time_ms
        consumer.poll(1)
        assert len(caplog.records) == 1
        while cluster.time_ms < stopped_ms + INTERVAL_MS + 10_000:
            consumer.poll(500)
        assert [record.name for record in caplog.records] == ["holdfast.consumer.mine"] * 2
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        second = caplog.messages[1]
        assert second.startswith("broker-1:9092: cannot connect: Connection refused")
        assert "more failures since the last warning" in second

        cluster.brokers[1].start()
        while len(caplog.messages) < 3:
            consumer.poll(500)
        assert caplog.messages[2].startswith("broker-1:9092: connected again, ")
        consumer.poll(2000)
        assert len(caplog.messages) == 3

    def test_a_broker_that_comes_and_goes_does_not_fill_the_log(
        self, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = Consumer(rng=random.Random(1), **on(cluster))
        consumer.add_topic("flights", 0)
        for _ in range(20):
            cluster.brokers[1].stop()
            consumer.poll(100)
            cluster.brokers[1].start()
            consumer.poll(900)
        lines = cluster.time_ms // INTERVAL_MS + 1
        assert lines <= len(caplog.records) <= 2 * lines

    @pytest.mark.parametrize("kind", ["admin", "producer"])
    def test_each_client_has_a_logger(
        self, cluster: FakeCluster, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster.brokers[1].stop()
        if kind == "admin":
            with Admin(**on(cluster)) as admin, pytest.raises(UnreachableError):
                admin.list_topics()
        else:
            Producer(is_threaded=False, **on(cluster)).turn(100)
        assert caplog.records[0].name == f"holdfast.{kind}.holdfast"


class TestCallsThatWait:
    """No broker has ever answered: the call fails after `bootstrap.timeout.ms`, with address and cause."""

    def expect(self, error: BaseException, cluster: FakeCluster) -> None:
        assert "broker-1:9092: cannot connect: Connection refused" in str(error)
        assert "bootstrap.timeout.ms=10000" in str(error)
        assert 10_000 <= cluster.time_ms <= 12_000

    def test_a_call_of_the_admin_client(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].stop()
        with Admin(**on(cluster)) as admin, pytest.raises(UnreachableError) as caught:
            admin.list_topics()
        self.expect(caught.value, cluster)

    def test_poll_of_a_consumer_and_its_question_for_partitions(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].stop()
        consumer = Consumer(**on(cluster))
        consumer.add_topic("flights")
        with pytest.raises(UnreachableError) as caught:
            for _ in range(1000):
                consumer.poll(100)
        self.expect(caught.value, cluster)
        with pytest.raises(UnreachableError):
            consumer.partitions_for("flights")

    @pytest.mark.parametrize("partition", [None, 0])
    def test_a_record_of_a_producer(self, cluster: FakeCluster, partition: int | None) -> None:
        cluster.brokers[1].stop()
        producer = Producer(is_threaded=False, **on(cluster))
        response = producer.send(Message("flights", value="v", partition=partition))
        while not response.done:
            producer.turn(1000)
        with pytest.raises(UnreachableError) as caught:
            response.result()
        self.expect(caught.value, cluster)

    def test_the_constructor_of_an_exclusive_producer(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].stop()
        given = on(cluster)
        with pytest.raises(UnreachableError) as caught:
            ExclusiveProducer(given["properties"], "flights", network=cluster, is_threaded=False)
        self.expect(caught.value, cluster)

    def test_nothing_fails_early_once_a_broker_has_answered(self, cluster: FakeCluster) -> None:
        producer = Producer(is_threaded=False, **on(cluster))
        producer.turn(100)
        while not producer.partitions_for("flights"):
            producer.send(Message("flights", value="first"))
            producer.turn(100)
        cluster.brokers[1].stop()
        response = producer.send(Message("flights", value="v", partition=0))
        while cluster.time_ms < 30_000:
            producer.turn(1000)
        assert not response.done
        cluster.brokers[1].start()
        assert producer.flush() and response.error is None

    def test_a_caller_that_was_away_gets_its_answer(self, cluster: FakeCluster) -> None:
        with Connection(cluster.bootstrap, network=cluster) as connection:
            connection.poll(0)
            cluster.time_ms += 60_000
            assert connection.ask(ANY_NODE, MetadataRequest(topics=None)).controller_id == 1
