"""A key-value store with a log and a leader for each shard (KIP-27).

    scripts/topics.sh --bootstrap-server localhost:9092 --create --topic store --partitions 3
    python docs/examples/key_value_store.py localhost:9092 store

The worked example of KIP-27: a topic is the write-ahead log, with one partition per shard. Run any number of
processes: each follows all shards, and a lease elects the leader of a shard. Commands are read by lines:
`put KEY VALUE` and `add KEY NUMBER`, for the shard's leader; `get KEY`, for any process.

Leases depend on clocks, and a paused process may still believe that it leads, so a shard may have two
leaders for a while. Therefore a leader appends operations only at the offset where it believes the log to
end. Operations of two leaders never mix, and an operation that was answered as done is in the log, and
stays there.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import MutableMapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from zlib import crc32

from holdfast_log import (
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
    """Carry out an operation. Returns the key's value afterwards. Raises ValueError if it is not allowed."""
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
    """A shard in this process: `values` is the result of the operations before offset `upcoming`."""

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
        """Claim leadership: the first process leads, the others wait in the queue."""
        name = f"leader of {self.place}"
        lease = Lease(
            self._address, self.place.topic, [name], wait_ms=FOR_EVER, session_timeout_ms=SESSION_MS
        )
        while lease.state(name) is ClaimState.CLAIMING:
            lease.poll(PAUSE_MS)
        return lease

    def is_led(self) -> bool:
        """Whether this process believes that it leads. After a loss it queues again."""
        try:
            self._lease.check()
        except OwnershipFencedError:
            self.resign()
            self._lease = self._stand()
        return self._lease.is_held

    def resign(self) -> None:
        """Give up leadership, or the place in the queue."""
        self._lease.close()

    def read_on(self) -> None:
        """Apply all operations that are in the log by now."""
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
        """Carry out operations, and append them in one batch at `upcoming`. Returns their answers."""
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
            # Unknown whether none, some or all were written: the next `read_on` finds out.
            return [f"failed: {error}"] * len(operations)
        self.values |= draft.maps[0]
        self.upcoming += len(messages)
        return answers

    def execute(self, operations: list[list[str]]) -> list[str]:
        """Follow the log, and carry out the operations that this process may. Returns their answers."""
        is_led = self.is_led()  # Before reading: a leader has then read all that earlier leaders wrote.
        self.read_on()
        if is_led:
            return self.append(operations)
        return [self.values.get(key, "") if verb == "get" else NOT_LED for verb, key, *_ in operations]


def read(commands: SimpleQueue[list[str]]) -> None:
    """Put the lines of standard input into the queue, until its end."""
    for line in sys.stdin:
        words = line.split()
        if len(words) < 2:
            print(USAGE, flush=True)
        else:
            commands.put(words)


def take(commands: SimpleQueue[list[str]]) -> list[list[str]]:
    """The commands that have arrived, at most one batch; waits up to PAUSE_MS for the first."""
    taken: list[list[str]] = []
    with suppress(Empty):
        taken.append(commands.get(timeout=PAUSE_MS / 1000))
        while len(taken) < BATCH_MAX:
            taken.append(commands.get_nowait())
    return taken


def main(bootstrap: str, topic: str) -> None:
    """Follow all shards, lead those that are free, and answer commands until standard input ends."""
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
