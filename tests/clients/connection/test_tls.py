"""Clients over TLS, against brokers with a certificate created for the test."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.config import ADMIN_ROWS
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClientError, ConfigError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataResponse
from holdfast_log.protocol.tls.names import STORE_TYPES, TLS_VERSIONS
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


class TlsFront(FakeCluster):
    """A broker in memory behind a TLS socket on loopback, with a thread for each connection."""

    def __init__(self, certificate: Path) -> None:
        super().__init__()
        self._lock = threading.Lock()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def metadata(self, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
        response = super().metadata(request, error)
        response.brokers[0].host, response.brokers[0].port = "localhost", self.port
        return response

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(plain,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        channel = self.connect("broker-1", 9092)
        try:
            with self._context.wrap_socket(plain, server_side=True) as secure:
                secure.settimeout(0.005)  # After a timeout, the fake clock is advanced for waiting fetches.
                while True:
                    try:
                        data = secure.recv(65_536)
                    except TimeoutError:
                        data = None
                    if data == b"":
                        return
                    with self._lock:
                        channel.inbox += data or b""
                        self.time_ms += 5
                        self.brokers[1].serve()
                        answer, channel.outbox = channel.outbox, bytearray()
                    secure.settimeout(10)
                    secure.sendall(answer)
                    secure.settimeout(0.005)
        except OSError:
            plain.close()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


def certificate(directory: Path, name: str) -> Path:
    """Write a PEM file with a key and a self-signed certificate for `name`. Returns its path."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    key, path, both = directory / "key.pem", directory / "certificate.pem", directory / "both.pem"
    command = f"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={name} -addext subjectAltName=DNS:{name}"
    subprocess.run(
        [openssl, *command.split(), "-keyout", str(key), "-out", str(path)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    both.write_bytes(key.read_bytes() + path.read_bytes())
    return both


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("localhost"), "localhost")


@pytest.fixture
def front(pem: Path) -> Iterator[TlsFront]:
    front = TlsFront(pem)
    front.add_topic("flights")
    yield front
    front.stop()


def properties(front: TlsFront, pem: Path, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{front.port}",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(pem),
        **more,
    }


def test_records_of_all_sizes_are_written_and_read_over_tls(front: TlsFront, pem: Path) -> None:
    values = [bytes([size % 251]) * size for size in (0, 1, 1000, 70_000, 900_000)]
    with Producer(properties(front, pem)) as producer:
        producer.send_many("flights", values)
        assert producer.flush(120_000)
    with Consumer(properties(front, pem)) as consumer:
        consumer.add_topic("flights", 0)
        consumer.seek(TopicPartition("flights", 0), 0)
        got: list[bytes] = []
        for _ in range(200):
            got += [record.value for record in consumer.poll(1000)]
            if len(got) == len(values):
                break

    assert got == values


def test_a_certificate_for_another_name_is_refused(front: TlsFront, pem: Path) -> None:
    strange = properties(front, pem, **{"bootstrap.servers": f"127.0.0.1:{front.port}"})
    with Producer({**strange, "max.block.ms": 5000}) as producer:
        with pytest.raises(ClientError, match="certificate verify failed"):
            producer.send(Message("flights", value="v")).result(120_000)
        assert front.topics["flights"][0].end_offset == 0
    with Producer({**strange, "ssl.endpoint.identification.algorithm": ""}) as trusting:
        assert trusting.send(Message("flights", value="v")).result(120_000).offset == 0


def test_a_certificate_of_an_unknown_authority_is_refused(front: TlsFront, tmp_path: Path) -> None:
    other = certificate(tmp_path, "localhost")
    with Producer({**properties(front, other), "max.block.ms": 5000}) as producer:
        response = producer.send(Message("flights", value="v"))
        with pytest.raises(ClientError, match="certificate verify failed"):
            response.result(120_000)


def test_a_file_without_a_certificate_is_named_in_the_error(front: TlsFront, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        Producer(properties(front, nothing))


def test_the_settings_name_stores_and_versions_that_there_are() -> None:
    """They are literals there, so that a client without TLS loads none of it."""
    choices = {row.name: row.choices for row in ADMIN_ROWS}
    assert choices["ssl.truststore.type"] == choices["ssl.keystore.type"] == STORE_TYPES
    assert choices["ssl.enabled.protocols"] == TLS_VERSIONS
