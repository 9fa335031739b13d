"""A bulk load that can be interrupted anywhere and restarted; every line is loaded exactly once.

    python docs/examples/bulk_load.py localhost:9092 flights flights.csv

Line n of the file is appended at offset n of the topic's partition 0, or not at all (KIP-27). So the log
itself shows how much is loaded: nothing is stored beside it, and it does not matter how the last run ended,
or whether it is still running. No other program may write to the topic.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice

from holdfast_log import Message, OffsetMismatchError, Producer, SendResponse

PARTITION = 0
UNDER_WAY_MAX = 10_000


def load(bootstrap: str, topic: str, path: str) -> int:
    """Load the lines that are not in the topic yet. Returns how many lines the topic has afterwards."""
    start = 0
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        while True:
            try:
                return start + load_from(producer, topic, path, start)
            except OffsetMismatchError as mismatch:
                # The log ends at another offset: at the first attempt, where an earlier run has stopped.
                print(f"continuing at line {mismatch.next_offset}", file=sys.stderr)
                start = mismatch.next_offset


def load_from(producer: Producer, topic: str, path: str, start: int) -> int:
    """Load the lines from number `start` on. Returns how many.

    Raises OffsetMismatchError if the log does not end at `start`.
    """
    under_way: deque[SendResponse] = deque()
    count = 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(islice(file, start, None), start):
            message = Message(topic, value=line.rstrip("\n"), partition=PARTITION, offset=number)
            under_way.append(producer.send(message))
            count += 1
            if len(under_way) >= UNDER_WAY_MAX:
                under_way.popleft().result()
    while under_way:
        under_way.popleft().result()
    return count


if __name__ == "__main__":
    print(load(*sys.argv[1:4]), "lines are in the topic")
