"""A key-value store with a log and a leader for each shard (KIP-27).

    scripts/topics.sh --bootstrap-server localhost:9092 --create --topic store --partitions 3
    python docs/examples/key_value_store.py localhost:9092 store

"The database uses a Kafka topic as a write-ahead log for all operations, with one partition per shard." Run
it as often as you like: every process follows all shards, and a lease elects who leads a shard. Commands come
by lines: `put KEY VALUE` and `add KEY NUMBER`, for the shard's leader; `get KEY`, for any process.

Leases go by clocks, and a process that was paused may still believe in its own: "we might transiently have
multiple 'leaders'". So operations are appended where their leader believes the log to end, or not at all.
Those of two leaders never mix, and what a client is told of is in the log, and stays there.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import MutableMapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from zlib import crc32

from holdfast import (
    FOR_EVER,
    BrokerError,
    ClaimState,
    ClientError,
    Consumer,
    Lease,
    Message,
    OwnershipFencedError,
    Producer,
    TopicPartition,
)

SESSION_MS = 3000
PAUSE_MS = 200
BATCH_MAX = 500
USAGE = "put KEY VALUE, add KEY NUMBER, or get KEY"
NOT_LED = "failed: another process leads this shard"


def apply(values: MutableMapping[str, str], operation: list[str]) -> str:
    """Carry out an operation; what its key holds then. Raises ValueError where it is not allowed."""
    match operation:
        case ["get", key]:
            return values.get(key, "")
        case ["put", key, value]:
            values[key] = value
        case ["add", key, number]:
            values[key] = str(int(values.get(key, "0")) + int(number))
        case _:
            raise ValueError(USAGE)
    return values[key]


class Shard:
    """A shard in this process: `values` is what the operations before offset `upcoming` have made."""

    def __init__(
        self, address: dict[str, str], place: TopicPartition, producer: Producer, consumer: Consumer
    ) -> None:
        self.place = place
        self.values: dict[str, str] = {}
        self.upcoming = 0
        self._address = address
        self._producer = producer
        self._consumer = consumer
        self._lease = self._stand()

    def _stand(self) -> Lease:
        """Stand for leader: who comes first leads, the others wait in line."""
        name = f"leader of {self.place}"
        lease = Lease(
            self._address, self.place.topic, [name], wait_ms=FOR_EVER, session_timeout_ms=SESSION_MS
        )
        while lease.state(name) is ClaimState.CLAIMING:
            lease.poll(PAUSE_MS)
        return lease

    def is_led(self) -> bool:
        """Whether this process leads, as far as it knows. One that was deposed gets in line again."""
        try:
            self._lease.check()
        except OwnershipFencedError:
            self.resign()
            self._lease = self._stand()
        return self._lease.is_held

    def resign(self) -> None:
        """Let the next in line lead."""
        self._lease.close()

    def read_on(self) -> None:
        """Follow, or bootstrap: apply all that is in the log by now."""
        end = self._consumer.end_offsets([self.place])[self.place]
        if self.upcoming < end:
            self._consumer.add_topic(*self.place)
            self._consumer.seek(self.place, self.upcoming)
            while self.upcoming < end:
                for record in self._consumer.poll(PAUSE_MS):
                    apply(self.values, record.value.decode().split())
                    self.upcoming = record.offset + 1
            self._consumer.remove_topic(*self.place)

    def append(self, operations: list[list[str]]) -> list[str]:
        """Carry out operations, and write them in one batch where the log is believed to end; the answers."""
        draft = ChainMap({}, self.values)
        answers: list[str] = []
        messages: list[Message] = []
        for operation in operations:
            try:
                answers.append(apply(draft, operation))
            except ValueError as refusal:
                answers.append(f"refused: {refusal}")
                continue
            if operation[0] != "get":
                line = " ".join(operation)
                messages.append(Message(self.place.topic, value=line, partition=self.place.partition))
        try:
            if messages:
                self._producer.send_at(self.upcoming, *messages).result()
        except (BrokerError, ClientError) as error:
            # Nothing was written, or the first of them, or all: the next reading tells.
            return [f"failed: {error}"] * len(operations)
        self.values |= draft.maps[0]
        self.upcoming += len(messages)
        return answers

    def execute(self, operations: list[list[str]]) -> list[str]:
        """Follow the log, and carry out what this process can; the answers."""
        is_led = self.is_led()  # Asked first: so nothing is missed that earlier leaders have written.
        self.read_on()
        if is_led:
            return self.append(operations)
        return [self.values.get(key, "") if verb == "get" else NOT_LED for verb, key, *_ in operations]


def read(commands: SimpleQueue[list[str]]) -> None:
    """Put the lines of standard input in the queue, to its end."""
    for line in sys.stdin:
        words = line.split()
        if len(words) < 2:
            print(USAGE, flush=True)
        else:
            commands.put(words)


def take(commands: SimpleQueue[list[str]]) -> list[list[str]]:
    """What has come in, at most one batch; waits a little for a first."""
    taken: list[list[str]] = []
    with suppress(Empty):
        taken.append(commands.get(timeout=PAUSE_MS / 1000))
        while len(taken) < BATCH_MAX:
            taken.append(commands.get_nowait())
    return taken


def main(bootstrap: str, topic: str) -> None:
    """Follow all shards, lead those that can be had, and answer commands until there are no more."""
    address = {"bootstrap.servers": bootstrap}
    commands: SimpleQueue[list[str]] = SimpleQueue()
    reader = Thread(target=read, args=(commands,), daemon=True)
    reader.start()
    with Producer(address) as producer, Consumer(address) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        shards = [Shard(address, place, producer, consumer) for place in places]
        while reader.is_alive() or not commands.empty():
            taken = take(commands)
            for number, shard in enumerate(shards):
                own = [words for words in taken if crc32(words[1].encode()) % len(shards) == number]
                for words, answer in zip(own, shard.execute(own), strict=True):
                    print(f"{' '.join(words)}: {answer}", flush=True)
        for shard in shards:
            shard.resign()


if __name__ == "__main__":
    main(*sys.argv[1:3])
