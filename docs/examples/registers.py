"""Registers that any process may change, one key at a time, without a leader (expected versions).

    scripts/topics.sh --bootstrap-server localhost:9092 --create --topic registers --config key.versions=true
    python docs/examples/registers.py localhost:9092 registers

Run any number of processes. Commands are read by lines: `set KEY VALUE`, `add KEY NUMBER`, `get KEY` and
`del KEY`.

The value of a key is that of its last record, and its version is the offset of that record. A process reads
the topic into a table, computes a new value from the one in its table, and sends it with the version that it
was computed from. The broker appends it only if the key still has that version. Otherwise another process was
first: the refusal names the present version, the process reads up to it and computes again. So no change is
lost, and processes that change different keys never disturb each other.

`del` writes a tombstone: a record without a value. If the topic is compacted, the tombstone itself goes after
a while, and its offset may still be the key's version. A process that reads there, and meets no record of the
key, knows that the key has no value.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from holdfast_log import (
    NO_VERSION,
    Admin,
    Consumer,
    KeyVersionMismatchError,
    Message,
    Producer,
    TopicPartition,
    TopicRecreatedError,
)

USAGE = "set KEY VALUE, add KEY NUMBER, get KEY, or del KEY"
WAIT_MS = 1000


class Register(NamedTuple):
    """A key's value, None if it has none, and the offset of its last record."""

    value: str | None = None
    version: int = NO_VERSION


class Registers:
    """The registers in partition 0 of a topic, as this process has read them."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = {"bootstrap.servers": address}
        self._place = TopicPartition(topic, 0)
        self._producer = Producer(self._address)
        self._consumer = Consumer({**self._address, "auto.offset.reset": "earliest"})
        self._begin()

    def _begin(self) -> None:
        """Begin with an empty table. Versions are offsets in the topic with the present id: if the topic is
        deleted and created again, a version from before must not fit a record of the new one."""
        with Admin(self._address) as admin:
            (described,) = admin.describe_topics([self._place.topic])
            self._topic_id = described.id
        self._consumer.remove_topic(*self._place)
        self._consumer.add_topic(*self._place)
        self._registers: dict[str, Register] = {}

    def change(self, command: list[str]) -> str:
        """Carry out a command. Returns the key's value afterwards, empty for none. Raises ValueError for an
        unknown command."""
        while True:
            register = self._registers.get(command[1], Register()) if len(command) > 1 else Register()
            value: str | None
            match command:
                case ["get", key]:
                    # A write that changes nothing: its success proves that the value is the present one.
                    value = register.value
                case ["set", key, value]:
                    pass
                case ["add", key, number]:
                    value = str(int(register.value or "0") + int(number))
                case ["del", key]:
                    value = None
                case _:
                    raise ValueError(USAGE)
            message = Message(
                self._place.topic,
                key=key,
                value=value,
                partition=self._place.partition,
                expected_version=register.version,
                topic_id=self._topic_id,
            )
            try:
                written = self._producer.send(message).result()
            except KeyVersionMismatchError as mismatch:
                self._learn(key, mismatch.version)
            except TopicRecreatedError:
                self._begin()
            else:
                self._registers[key] = Register(value, written.offset)
                return value or ""

    def _learn(self, key: str, version: int) -> None:
        """Find out which value a key has in the version that a refusal has named."""
        if version == NO_VERSION:
            self._registers.pop(key, None)
            return
        if self._version(key) > version:
            self._begin()  # Records were lost, by an unclean election.
        if self._version(key) < version < self._consumer.position(self._place):
            self._consumer.seek(self._place, version)
        while self._version(key) < version and self._consumer.position(self._place) <= version:
            for record in self._consumer.poll(WAIT_MS):
                name = record.key.decode()
                if record.offset > self._version(name):
                    value = None if record.value is None else record.value.decode()
                    self._registers[name] = Register(value, record.offset)
        if self._version(key) < version:
            # The record is gone. While it is the last one of its key, only a tombstone goes.
            self._registers[key] = Register(None, version)

    def _version(self, key: str) -> int:
        """The version of a key that this process has read."""
        return self._registers.get(key, Register()).version


def main(address: str, topic: str) -> None:
    registers = Registers(address, topic)
    for line in sys.stdin:
        try:
            print(registers.change(line.split()), flush=True)
        except ValueError as error:
            print(f"failed: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
