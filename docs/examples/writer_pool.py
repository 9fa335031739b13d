"""A pool of processes that write for one owner (fences, PIP-68).

    python docs/examples/writer_pool.py localhost:9092 journal first

The main process takes the topic's partition 0 for itself, and gives the fence of its grant to two other
processes. These write on connections of their own, and know nothing of the claim. Run the program again, as
`second`: it takes the partition over, and the broker refuses the first pool from then on, even if the first
main process is paused and has noticed nothing. Ctrl-C releases the partition, and so ends the pool as well.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
import time

from holdfast_log import (
    BrokerError,
    ClientError,
    ExclusiveProducer,
    Message,
    OwnerFence,
    Producer,
    ProducerAccessMode,
    ProducerFencedError,
)

POOL_SIZE = 2


def write(bootstrap: str, topic: str, fence: OwnerFence, name: str) -> None:
    """Write numbered records until the broker refuses the fence: the work of one process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The main process ends the pool, by its release.
    with Producer({"bootstrap.servers": bootstrap}, fence=fence) as producer:
        for number in itertools.count():
            try:
                producer.send(Message(topic, value=f"{name} {number}", partition=0)).result()
            except ProducerFencedError:
                print(f"{name}: refused after {number} records", flush=True)
                return
            except (BrokerError, ClientError) as error:
                print(f"{name}: failed after {number} records: {error}", flush=True)
                return
            time.sleep(0.01)


def main(bootstrap: str, topic: str, name: str) -> None:
    """Take the partition, and have the pool write to it."""
    spawning = multiprocessing.get_context("spawn")
    mode = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
    with ExclusiveProducer({"bootstrap.servers": bootstrap}, topic, mode, partitions=[0]) as owner:
        fence = owner.fence()  # Pickled for the processes, with the secret that proves the grant.
        pool = [
            spawning.Process(target=write, args=(bootstrap, topic, fence, f"{name}.{number}"))
            for number in range(POOL_SIZE)
        ]
        for process in pool:
            process.start()
        print(f"{name}: owner with epoch {owner.epoch()}, from offset {owner.fence_offset()}", flush=True)
        try:
            for process in pool:
                process.join()
        except KeyboardInterrupt:
            print(f"{name}: releases the partition", flush=True)
    for process in pool:
        process.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
