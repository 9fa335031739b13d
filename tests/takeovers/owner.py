"""One of the owners of the drill, a process: python -m tests.takeovers.owner BOOTSTRAP TOPIC NAME SESSION_MS.

It waits for the topic, writes all the time while it is its own, and, once it has been fenced, goes on trying
to write for a while, by the connection that it had and by others, before it waits again. Every record says
who wrote it, and in which epoch.

It prints `waits`; `owns EPOCH FENCE_OFFSET`; `fenced EPOCH TRIED REFUSED`, with how many records it tried to
append after it had lost the topic.
"""

from __future__ import annotations

import sys
import time
from collections import deque

from clients.errors import ConnectionFailedError, DeliveryTimeoutError
from clients.exclusive_producer import ExclusiveProducer
from clients.message import Message
from clients.ownership.events import ClaimState, OwnershipEvent
from clients.producer import Producer
from clients.sending.responses import SendResponse
from protocol.errors import BrokerError, ProducerFencedError
from protocol.messages.producer_access import ProducerAccessMode

UNDER_WAY_MAX = 50
PAUSE_S = 0.001
INTRUSIONS = 3


def say(*words: object) -> None:
    print(*words, flush=True)


def own(bootstrap: str, topic: str, name: str, session_ms: int, intruder: Producer) -> None:
    """Wait for the topic, and write until it is lost."""

    def follow(event: OwnershipEvent) -> None:
        if event.state is ClaimState.QUEUED:
            say("waits")

    with ExclusiveProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0},
        topic,
        ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
        session_timeout_ms=session_ms,
        on_ownership=follow,
    ) as producer:
        epoch = producer.epoch()
        say("owns", epoch, producer.fence_offset())
        message = Message(topic, value=f"{name} {epoch}", partition=0)
        under_way: deque[SendResponse] = deque()
        try:
            while True:
                under_way.append(producer.send(message))
                while under_way and (under_way[0].done or len(under_way) >= UNDER_WAY_MAX):
                    under_way.popleft().result()
                time.sleep(PAUSE_S)
        except ProducerFencedError:
            tried = 1 + sum(response.error is not None for response in under_way)
        refused = sum(is_refused(intruder, message) for _ in range(INTRUSIONS))
        say("fenced", epoch, tried + INTRUSIONS, tried + refused)


def is_refused(intruder: Producer, message: Message) -> bool:
    """Write past the claim, as one that does not know that it has been fenced."""
    try:
        intruder.send(message).result()
    except BrokerError:
        return True
    except (ConnectionFailedError, DeliveryTimeoutError):
        return False
    return False


def main() -> None:
    bootstrap, topic, name, session_ms = sys.argv[1:]
    stock = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": False}
    with Producer(stock) as intruder:
        while True:
            own(bootstrap, topic, name, int(session_ms), intruder)


if __name__ == "__main__":
    main()
