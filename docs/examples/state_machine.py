"""A state machine whose leader is elected by its own log (PIP-68): accounts, and transfers between them.

    echo "deposit anna 10" | python docs/examples/state_machine.py localhost:9092 accounts

Run any number of processes: one leads, the others wait. Commands are read by lines, `deposit NAME AMOUNT`
and `transfer FROM TO AMOUNT`; whether a command is allowed depends on all commands before it. Since only
the leader can write, and a former leader is fenced, the updates of one leader follow those of the previous
one without mixing.

The topic is compacted: it needs to keep only the last balance of each account. A command that changes two
accounts is one batch, written completely or not at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from holdfast_log import (
    Consumer,
    ExclusiveProducer,
    Message,
    ProducerAccessMode,
    ProducerFencedError,
    TopicPartition,
)

PARTITION = 0
POLL_MS = 1000


class Refused(Exception):
    """A command that the present balances do not allow."""


def changes(balances: dict[str, int], command: list[str]) -> dict[str, int]:
    """The balances that a command changes. Raises Refused."""
    match command:
        case ["deposit", name, amount]:
            return {name: balances.get(name, 0) + int(amount)}
        case ["transfer", source, target, amount] if source != target:
            if balances.get(source, 0) < int(amount):
                raise Refused(f"{source} has only {balances.get(source, 0)}")
            return {
                source: balances[source] - int(amount),
                target: balances.get(target, 0) + int(amount),
            }
    raise Refused(f"unknown command: {' '.join(command)}")


def replay(bootstrap: str, topic: str, end: int) -> dict[str, int]:
    """The balances that the previous leaders have written: all records before offset `end`."""
    balances: dict[str, int] = {}
    place = TopicPartition(topic, PARTITION)
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(*place)
        while consumer.position(place) < end:
            for record in consumer.poll(POLL_MS):
                balances[record.key.decode()] = int(record.value)
    return balances


def lead(producer: ExclusiveProducer, balances: dict[str, int], end: int, commands: Iterable[str]) -> None:
    """Carry out commands one after the other. Raises ProducerFencedError when another process leads."""
    for line in commands:
        try:
            changed = changes(balances, line.split())
        except Refused as refusal:
            print("refused:", refusal, flush=True)
            continue
        messages = [
            Message(producer.topic, key=name, value=str(balance), partition=PARTITION)
            for name, balance in changed.items()
        ]
        # A change is reported only after it is in the log, and only the leader can append it.
        producer.send_at(end, *messages).result()
        end += len(messages)
        balances |= changed
        print("done:", line.strip(), flush=True)


def main(bootstrap: str, topic: str) -> None:
    """Wait to lead, then carry out commands until standard input ends."""
    mode = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
    with ExclusiveProducer({"bootstrap.servers": bootstrap}, topic, mode) as producer:
        end = producer.fence_offset(PARTITION) or 0
        balances = replay(bootstrap, topic, end)
        print("leading:", ", ".join(f"{name} {balances[name]}" for name in sorted(balances)), flush=True)
        try:
            lead(producer, balances, end, sys.stdin)
        except ProducerFencedError as error:
            sys.exit(f"another process leads: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
