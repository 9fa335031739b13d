"""A bulk load that can be broken off anywhere and begun again, with no line twice and none left out.

    python docs/examples/bulk_load.py localhost:9092 flights flights.csv

Line n of the file lands at offset n of the topic's partition 0, or nowhere (KIP-27).
So the log itself says how far the load has come: nothing is kept beside it, and it does not matter how the
last run ended, or whether it has ended at all. The topic must be the load's own.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice

from holdfast import Message, OffsetMismatchError, Producer, SendResponse

PARTITION = 0
UNDER_WAY_MAX = 10_000


def load(bootstrap: str, topic: str, path: str) -> int:
    """Load what is not loaded yet; how many lines the topic has then."""
    start = 0
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        while True:
            try:
                return start + load_from(producer, topic, path, start)
            except OffsetMismatchError as mismatch:
                # The log ends elsewhere than thought: to begin with, where an earlier run has left it.
                print(f"going on at line {mismatch.next_offset}", file=sys.stderr)
                start = mismatch.next_offset


def load_from(producer: Producer, topic: str, path: str, start: int) -> int:
    """Load the lines from number `start` on; how many. Raises OffsetMismatchError: the log ends elsewhere."""
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
