"""librdkafka gives a sequence to a second record when it aborts a transaction while a batch waits to be sent
again. Kafka's brokers acknowledge the second record, and do not write it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.network.endpoints import BROKERS
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, NewTopic
from tests.forked_brokers import ForkedBroker
from tests.integration.clients import consume
from tests.integration.waiting import until

kafka = pytest.importorskip("confluent_kafka")

HOST = "127.0.0.1"
WAIT_S = 240
CONFIG = {
    "transactional.id": "x",
    "linger.ms": 0,
    "broker.address.family": "v4",
    "log_level": 0,
    "reconnect.backoff.max.ms": 200,
    "transaction.timeout.ms": 600_000,  # A busy machine may need more than the minute that is the default.
}


class Mute:
    """A relay in front of a broker, which can keep the broker's answers to itself, and then lets no one
    through."""

    def __init__(self) -> None:
        self.target = 0
        self.is_mute = False
        self.kept = 0
        """Bytes of answers that were kept."""
        self.is_closed = False
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, HOST, 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def _relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.is_closed:
            to_client.close()
            return
        broker, to_broker = await asyncio.open_connection(HOST, self.target)
        self._writers += [to_client, to_broker]
        await asyncio.gather(self._copy(client, to_broker), self._copy(broker, to_client, is_answer=True))

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if is_answer and self.is_mute:
                    self.kept += len(data)
                else:
                    target.write(data)
                    await target.drain()
        except OSError:
            pass  # The other direction has ended the connection.
        target.close()

    def close(self) -> None:
        """End all connections, and refuse others."""
        self.is_closed = True
        self._loop.call_soon_threadsafe(lambda: [writer.close() for writer in self._writers])

    def open(self) -> None:
        self.is_closed = self.is_mute = False

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def in_transaction(producer: Any, value: bytes) -> None:
    """Commit a record, in another transaction if the first has to be aborted."""
    while True:
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        try:
            producer.commit_transaction(WAIT_S)
        except kafka.KafkaException as error:
            assert error.args[0].txn_requires_abort()
            producer.abort_transaction(WAIT_S)
        else:
            return


@pytest.mark.timeout(1500)
def test_no_committed_record_is_lost_though_an_aborted_one_has_its_sequence(tmp_path: Path) -> None:
    relay = Mute()
    cluster = LocalCluster(
        tmp_path, properties={"transaction.state.log.num.partitions": "1"}, broker_type=ForkedBroker
    )
    (broker,) = cluster.brokers
    relay.target = broker.port
    inside = f"{BROKERS}://{HOST}:{broker.brokers_port}"
    broker.properties["advertised.listeners"] = f"PLAINTEXT://{HOST}:{relay.port},{inside}"
    bootstrap = f"{HOST}:{relay.port}"
    try:
        with cluster:
            with Admin({"bootstrap.servers": bootstrap}) as admin:
                admin.create_topics([NewTopic("t", 1, 1)])
            producer = kafka.Producer({**CONFIG, "bootstrap.servers": bootstrap})
            producer.init_transactions(WAIT_S)
            in_transaction(producer, b"first")
            producer.begin_transaction()
            producer.produce("t", b"of the aborted transaction", partition=0)
            assert producer.flush(WAIT_S) == 0
            relay.is_mute = True
            producer.produce("t", b"written, and not acknowledged", partition=0)
            until(lambda: relay.kept > 0)
            relay.close()
            opening = threading.Timer(2.0, relay.open)
            opening.start()
            producer.abort_transaction(WAIT_S)
            opening.join()
            in_transaction(producer, b"second")
            in_transaction(producer, b"third")
            found = consume(bootstrap, "t", 3, 0, **{"isolation.level": "read_committed"})
            assert found == [b"first", b"second", b"third"]
    finally:
        relay.end()
