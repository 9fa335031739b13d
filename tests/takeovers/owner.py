"""One process of the drill: python -m tests.takeovers.owner BOOTSTRAP TOPIC NAME SESSION_MS.

It waits for exclusive access and writes without pause until it is fenced. Then it tries a few more writes,
on its own connection and on others, and waits again. Each record's value is the writer's name and epoch.

It prints `waits`; `owns EPOCH FENCE_OFFSET`; `fenced EPOCH TRIED REFUSED`, with the numbers of appends that
it tried after it was fenced, and of those that the broker refused.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import suppress

from holdfast_log.clients.errors import ConnectionFailedError, DeliveryTimeoutError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.errors import BrokerError, ProducerFencedError
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode

UNDER_WAY_MAX = 50
PAUSE_S = 0.001
INTRUSIONS = 3


def say(*words: object) -> None:
    print(*words, flush=True)


def own(bootstrap: str, topic: str, name: str, session_ms: int, intruder: Producer) -> None:
    """Wait for exclusive access to the topic, and write until fenced."""

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
        epoch, fence = producer.epoch(), producer.fence_offset()
        if epoch is None or fence is None:
            return  # The session has ended before this thread ran.
        say("owns", epoch, fence)
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
    """Write as a producer without access; whether the broker refuses the write."""
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
            with suppress(ProducerFencedError):  # The session has ended before this thread ran.
                own(bootstrap, topic, name, int(session_ms), intruder)


if __name__ == "__main__":
    main()
