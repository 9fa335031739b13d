"""Registers that any process may change, one key at a time, without a leader (expected versions).

    scripts/topics.sh --bootstrap-server localhost:9092 --create --topic registers --config key.versions=true
    python docs/examples/registers.py localhost:9092 registers

Run any number of processes. Commands are read by lines: `set KEY VALUE`, `add KEY NUMBER`, `get KEY`.

The value of a key is that of its last record, and its version is the offset of that record. A process reads
the topic into a table, computes a new value from the one in its table, and sends it with the version that it
was computed from. The broker appends it only if the key still has that version. Otherwise another process was
first: the refusal names the present version, the process reads up to it and computes again. So no change is
lost, and processes that change different keys never disturb each other.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from holdfast_log import NO_VERSION, Consumer, KeyVersionMismatchError, Message, Producer

USAGE = "set KEY VALUE, add KEY NUMBER, or get KEY"
WAIT_MS = 1000


class Register(NamedTuple):
    """A key's value, and the offset of its last record."""

    value: str = ""
    version: int = NO_VERSION


class Registers:
    """The registers in partition 0 of a topic, as this process has read them."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": address})
        self._consumer = Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest"})
        self._consumer.add_topic(topic, 0)
        self._registers: dict[str, Register] = {}

    def change(self, command: list[str]) -> str:
        """Carry out a command. Returns the key's value afterwards. Raises ValueError for an unknown one."""
        while True:
            register = self._registers.get(command[1], Register()) if len(command) > 1 else Register()
            match command:
                case ["get", key]:
                    # A write that changes nothing: its success proves that the value is the present one.
                    value = register.value
                case ["set", key, value]:
                    pass
                case ["add", key, number]:
                    value = str(int(register.value or "0") + int(number))
                case _:
                    raise ValueError(USAGE)
            message = Message(
                self._topic, key=key, value=value, partition=0, expected_version=register.version
            )
            try:
                written = self._producer.send(message).result()
            except KeyVersionMismatchError as mismatch:
                self._read_to(key, mismatch.version)
            else:
                self._registers[key] = Register(value, written.offset)
                return value

    def _read_to(self, key: str, version: int) -> None:
        """Read the topic until the table has this version of the key, or a later one."""
        if version == NO_VERSION:
            # The records of the key that this process has read were deleted.
            self._registers.pop(key, None)
        while self._registers.get(key, Register()).version < version:
            for record in self._consumer.poll(WAIT_MS):
                name = record.key.decode()
                if record.offset > self._registers.get(name, Register()).version:
                    self._registers[name] = Register(record.value.decode(), record.offset)


def main(address: str, topic: str) -> None:
    registers = Registers(address, topic)
    for line in sys.stdin:
        try:
            print(registers.change(line.split()), flush=True)
        except ValueError as error:
            print(f"failed: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
