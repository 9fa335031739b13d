"""A key-value store with a log for each shard (seed kip-27-conditional-publish): no lock, no election.

    echo "add visits 1" | python docs/examples/key_value_store.py localhost:9092 store

"The database uses a Kafka topic as a write-ahead log for all operations, with one partition per shard."
Whoever runs this leads all shards; where several do, conditions keep their operations apart: each is appended
where its leader believes the log to end, or not at all, and one that was wrong reads on and decides anew. So
an answer is true of the log as it was at that offset, and nothing acknowledged is ever undone.

Commands by lines: `put KEY VALUE`, `add KEY NUMBER`, `get KEY`. A `get` is answered from the log's end, too.
"""

from __future__ import annotations

import sys
from zlib import crc32

from holdfast import Consumer, Message, OffsetMismatchError, Producer, TopicPartition

POLL_MS = 200


class Shard:
    """One shard as its leader has it: what the log holds up to the `upcoming` offset."""

    def __init__(self, producer: Producer, consumer: Consumer, place: TopicPartition) -> None:
        self._producer = producer
        self._consumer = consumer
        self._place = place
        self.values: dict[str, str] = {}
        self.upcoming = 0

    def bootstrap(self, end: int) -> None:
        """Apply what the log holds before offset `end`."""
        if self.upcoming < end:
            self._consumer.add_topic(*self._place)
            self._consumer.seek(self._place, self.upcoming)
            while self.upcoming < end:
                for record in self._consumer.poll(POLL_MS):
                    self.values[record.key.decode()] = record.value.decode()
                    self.upcoming = record.offset + 1
            self._consumer.remove_topic(*self._place)

    def append(self, operations: dict[str, str]) -> bool:
        """Write operations at the upcoming offset, one batch; False where another leader has been there."""
        messages = [
            Message(self._place.topic, key=key, value=value, partition=self._place.partition)
            for key, value in operations.items()
        ]
        try:
            self._producer.send_at(self.upcoming, *messages).result()
        except OffsetMismatchError as mismatch:
            self.bootstrap(mismatch.next_offset)
            return False
        self.values |= operations
        self.upcoming += len(messages)
        return True


class Store:
    """All shards, and the commands on them."""

    def __init__(self, producer: Producer, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        self._shards = {place: Shard(producer, consumer, place) for place in places}

    def execute(self, command: list[str]) -> str:
        """The answer to a command. Raises ValueError for what is none."""
        if len(command) < 2:
            raise ValueError("put KEY VALUE, add KEY NUMBER, or get KEY")
        place = list(self._shards)[crc32(command[1].encode()) % len(self._shards)]
        shard = self._shards[place]
        while True:
            match command:
                case ["get", key]:
                    shard.bootstrap(self._consumer.end_offsets([place])[place])
                    return shard.values.get(key, "")
                case ["put", key, value]:
                    operation = {key: value}
                case ["add", key, number]:
                    operation = {key: str(int(shard.values.get(key, "0")) + int(number))}
                case _:
                    raise ValueError(f"no such command: {' '.join(command)}")
            if shard.append(operation):
                return operation[key]


if __name__ == "__main__":
    address, name = {"bootstrap.servers": sys.argv[1]}, sys.argv[2]
    with Producer(address) as its_producer, Consumer(address) as its_consumer:
        store = Store(its_producer, its_consumer, name)
        for line in sys.stdin:
            print(store.execute(line.split()), flush=True)
