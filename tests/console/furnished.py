"""Brokers with topics, messages, a group, owners, rights and a transaction, for a console to show."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from holdfast_log import (
    Admin,
    Consumer,
    ExclusiveProducer,
    Message,
    NewTopic,
    Producer,
    ProducerAccessMode,
)
from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    ClientQuotaEntity,
    NewScramCredential,
    ResourcePattern,
)
from tests.cluster import Cluster
from tests.console.browser import WITHIN_S
from tests.console.served import LONG_SESSION
from tests.integration.waiting import until

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
_PROPERTIES = {
    "authorizer.class.name": "acls",
    "super.users": "User:ANONYMOUS",
    # Where one broker ends, the group and the transaction go on.
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    **LONG_SESSION,
}


@contextmanager
def shown(cluster: Cluster) -> Iterator[None]:
    """Start three brokers, and keep clients busy with them until the block ends."""
    cluster.start(3, _PROPERTIES)
    bootstrap = cluster.bootstrap
    topics = [
        NewTopic("orders", 6, 3, {"retention.ms": "604800000", "min.insync.replicas": "2"}),
        NewTopic("journal", 2, 3),
        NewTopic("ship-positions", 12, 2),
        NewTopic("payments", 3, 3, {"cleanup.policy": "compact"}),
        NewTopic("clicks.of-the-web-shop.in-a-topic-with-a-long-name-that-has-to-be-broken", 4, 1),
    ]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics(topics)
        give_rights(admin)
    until_all_know(cluster, lambda admin: {topic.name for topic in topics} <= set(admin.list_topics()))
    until_all_know(cluster, lambda admin: len(admin.describe_acls(AclFilter())) == 5)
    until_all_know(cluster, lambda admin: len(admin.describe_scram_credentials()) == 2)
    until_all_know(cluster, lambda admin: len(admin.describe_client_quotas()) == 2)
    write(bootstrap, "orders", 600)
    write(bootstrap, "ship-positions", 3_000)
    write(bootstrap, "payments", 40)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(Message("orders", key=HOSTILE, value=HOSTILE, partition=5)).result()
    with (
        reading(bootstrap, "billing", "orders"),
        owned(bootstrap),
        writing(bootstrap, "ship-positions"),
        open_transaction(bootstrap, "till", "payments"),
    ):
        yield


def until_all_know(cluster: Cluster, knows: Callable[[Admin], bool]) -> None:
    """Wait until each broker knows something: the console may ask any of them."""
    for broker in cluster.brokers:
        with Admin({"bootstrap.servers": broker.address}) as admin:
            until(partial(knows, admin))


def give_rights(admin: Admin) -> None:
    """Entries of access control lists, users and quotas, so that there is something to see."""

    def entry(principal: str, operation: AclOperation, name: str, host: str = "*") -> AclBinding:
        prefix = AclPattern.PREFIXED if name.endswith("-") else AclPattern.LITERAL
        permission = AclPermission.ALLOW if host == "*" else AclPermission.DENY
        return AclBinding(
            ResourcePattern(AclResource.TOPIC, name, prefix), AclEntry(principal, host, operation, permission)
        )

    admin.create_acls(
        [
            entry("User:anna", AclOperation.WRITE, "orders"),
            entry("User:anna", AclOperation.READ, "payments"),
            entry("User:CN=ops,O=Example", AclOperation.ALL, "*"),
            entry("User:bert", AclOperation.READ, "ship-"),
            entry("User:*", AclOperation.WRITE, "payments", host="192.0.2.7"),
        ]
    )
    admin.alter_scram_credentials(
        [NewScramCredential("anna", "open sesame"), NewScramCredential("bert", "x", "SCRAM-SHA-256", 8192)]
    )
    admin.alter_client_quotas(
        {
            ClientQuotaEntity.of(user="anna"): {"producer_byte_rate": 1048576.0},
            ClientQuotaEntity.of(client_id=None): {"consumer_byte_rate": 10485760.0},
        }
    )


def write(bootstrap: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            value = {
                "id": number,
                "customer": f"c-{number % 17}",
                "total": 12.5,
                "items": [{"sku": "A7", "n": 2}],
            }
            producer.send(
                Message(
                    topic, key=f"{topic}-{number}", value=json.dumps(value), headers=[("trace", b"4bf92f35")]
                )
            )
        producer.flush()


class writing:
    """Writes to a topic until the block ends, now more and now less, so that there is something to see."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._stop = threading.Event()
        self._given = {"bootstrap.servers": bootstrap}
        self._topic = topic
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with Producer(self._given) as producer:
            for turn in itertools.count():
                for _ in range(10 + turn % 23):
                    producer.send(Message(self._topic, value="54.3 N, 10.1 E"))
                if self._stop.wait(0.2):
                    return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def open_transaction(bootstrap: str, transactional_id: str, topic: str) -> Iterator[None]:
    """A transaction that is open for as long as the tests run."""
    properties = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    with Producer({**properties, "transaction.timeout.ms": 900_000}) as producer:
        transaction = producer.transaction()
        transaction.send(Message(topic, key="open", value="open", partition=0)).result()
        yield
        transaction.abort()


class reading:
    """A member of a group that reads and commits until the block ends."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._stop = threading.Event()
        self._started = threading.Event()
        self._given = {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": "billing-1",
            "auto.offset.reset": "earliest", "max.poll.records": 100, "auto.commit.interval.ms": 200,
        }  # fmt: skip
        self._topic = topic
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        with Consumer(self._given) as consumer:
            consumer.add_topic(self._topic)
            while not self._stop.is_set():
                if consumer.poll(200):
                    self._started.set()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._started.wait(WITHIN_S)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class owned:
    """An owner of the journal, and two that wait for it."""

    def __init__(self, bootstrap: str) -> None:
        self._given = {"bootstrap.servers": bootstrap}

    def _claimant(self, name: str, *, is_waiting: bool) -> ExclusiveProducer:
        return ExclusiveProducer(
            {**self._given, "client.id": f"program-of-{name}"}, "journal",
            ProducerAccessMode.WAIT_FOR_EXCLUSIVE, partitions=[0], producer_id=name, is_waiting=is_waiting,
            session_timeout_ms=60_000,
        )  # fmt: skip

    def __enter__(self) -> None:
        with self._claimant("north-tower", is_waiting=True) as earlier:
            earlier.send(Message("journal", value="I was here", partition=0)).result()
        self._owners = [self._claimant("harbour", is_waiting=True)]
        self._owners[0].send(Message("journal", value="I lead", partition=0)).result()
        with Admin(self._given) as admin:
            for name in ("lighthouse", "pier"):
                self._owners.append(self._claimant(name, is_waiting=False))
                until(partial(self._waits, admin, name))

    @staticmethod
    def _waits(admin: Admin, name: str) -> bool:
        return name in {each.owner_id for row in admin.describe_owners() for each in row.waiters}

    def __exit__(self, *_: object) -> None:
        for each in self._owners:
            each.close()
