"""Owns a topic until it is killed: python -m benchmarks.ownership_holder BOOTSTRAP TOPIC.

Prints `held` once it owns the topic.
"""

from __future__ import annotations

import signal
import sys

from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    with ExclusiveProducer({"bootstrap.servers": bootstrap}, topic, ProducerAccessMode.WAIT_FOR_EXCLUSIVE):
        print("held", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
