"""One of our clients, with ordinary deadlines, at a broker that may lie.

    python -m tests.hostile.lied_to KIND ADDRESS [PATIENCE]

prints one line of JSON: what came of the client's calls, how long the longest took beyond its deadline, by
how much the process grew, how much processor time it used, and how many warnings it gave. Its deadlines are
PATIENCE times as long: a client that is not lied to has to get what it wants on a busy machine, too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import BrokerError
from tests.hostile.attack import memory_bytes

TOPIC = "flights"


@dataclass(slots=True)
class Told:
    """What a client says of itself at its end."""

    ended: dict[str, int]
    """How its calls ended: "done", or the name of an error."""
    late_s: float
    """How much longer than its deadline a call took at most."""
    grown_bytes: int
    worked_s: float
    """Processor time."""
    warnings: int


class Calls:
    """Makes calls that have to end by a deadline, and counts how they did."""

    def __init__(self, patience: int = 1) -> None:
        self.ended: Counter[str] = Counter()
        self.late_s = 0.0
        self._patience = patience

    def ms(self, deadline_ms: int) -> int:
        """A deadline, as long as this client is patient."""
        return deadline_ms * self._patience

    @property
    def timeouts(self) -> dict[str, object]:
        return {"request.timeout.ms": self.ms(2_000), "default.api.timeout.ms": self.ms(6_000)}

    def make(self, what: Callable[[], Any], deadline_s: float) -> Any:
        """What a call returns; None after an error of a client or broker. Other errors are raised."""
        began_s = time.monotonic()
        try:
            found = what()
            self.ended["done"] += 1
        except (ClientError, BrokerError) as error:
            found = None
            self.ended[type(error).__name__] += 1
        self.late_s = max(self.late_s, time.monotonic() - began_s - deadline_s * self._patience)
        return found


def produce(calls: Calls, address: str) -> None:
    properties = {
        "bootstrap.servers": address, "delivery.timeout.ms": calls.ms(5_000),
        "request.timeout.ms": calls.ms(2_000), "linger.ms": 0, "max.block.ms": calls.ms(3_000),
    }  # fmt: skip
    producer = Producer(properties)
    for number in range(3):
        waiting = calls.make(lambda number=number: producer.send(Message(TOPIC, value=b"%d" % number)), 3)  # type: ignore[misc]
        if waiting is not None:
            calls.make(waiting.result, 5)
    calls.make(lambda: producer.close(calls.ms(3_000)), 3)


def consume(calls: Calls, address: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest", **calls.timeouts})
    consumer.add_topic(TOPIC, 0)
    got = 0
    for _ in range(8):
        got += len(calls.make(lambda: consumer.poll(1_000), 1) or ())
    calls.ended[f"{got} records"] += 1
    calls.make(consumer.close, 3)


def consume_in_a_group(calls: Calls, address: str) -> None:
    properties = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**properties, **calls.timeouts})
    consumer.add_topic(TOPIC)
    for _ in range(6):
        calls.make(lambda: consumer.poll(1_000), 1)
    calls.make(consumer.commit, 6)
    calls.make(consumer.close, 30)


def administer(calls: Calls, address: str) -> None:
    admin = calls.make(lambda: Admin({"bootstrap.servers": address, **calls.timeouts}), 6)
    if admin is None:
        return
    # A call that asks a leader or coordinator may ask for the cluster first: two deadlines.
    calls.make(admin.list_topics, 12)
    calls.make(lambda: admin.create_topics([NewTopic("new", 1, 1)]), 12)
    calls.make(lambda: admin.describe_topics([TOPIC]), 12)
    calls.make(admin.describe_cluster, 12)
    calls.make(admin.close, 1)


def transact(calls: Calls, address: str) -> None:
    properties = {
        "bootstrap.servers": address, "transactional.id": "t", "delivery.timeout.ms": calls.ms(5_000),
        "request.timeout.ms": calls.ms(2_000), "linger.ms": 0, "max.block.ms": calls.ms(6_000),
    }  # fmt: skip
    producer = Producer(properties)

    def transfer() -> None:
        with producer.transaction() as transaction:
            transaction.send(Message(TOPIC, value=b"x"))

    calls.make(producer.init_transactions, 6)
    if calls.ended["done"]:
        calls.make(transfer, 12)
    calls.make(lambda: producer.close(calls.ms(3_000)), 3)


KINDS: dict[str, Callable[[Calls, str], None]] = {
    "producer": produce,
    "consumer": consume,
    "member of a group": consume_in_a_group,
    "admin": administer,
    "transactions": transact,
}


class _Warnings(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def main(kind: str, address: str, patience: str = "1") -> None:
    warnings = _Warnings(logging.WARNING)
    logging.getLogger().addHandler(warnings)
    calls, before = Calls(int(patience)), _peak_bytes()
    KINDS[kind](calls, address)
    told = Told(dict(calls.ended), calls.late_s, _peak_bytes() - before, time.process_time(), warnings.count)
    print(json.dumps(asdict(told)), flush=True)


def _peak_bytes() -> int:
    # Not ru_maxrss: that of a process begins with its parent's.
    return memory_bytes(os.getpid(), "VmHWM")


if __name__ == "__main__":
    main(*sys.argv[1:])
