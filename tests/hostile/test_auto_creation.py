"""Requests for metadata that create topics, new ones in each: the broker and its controller go on."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from holdfast_log.protocol.messages.metadata import MetadataRequest
from tests.hostile.attack import Target
from tests.hostile.floods import TOPICS_PER_REQUEST, creating_frames
from tests.hostile.furnished import probed_broker
from tests.hostile.neighbour import Kind, running_neighbour
from tests.hostile.report import TURN_MS_MAX
from tests.hostile.sending import is_serving
from tests.integration.raw_socket import RawSocket

BUSY_TURN_MS_MAX = 2 * TURN_MS_MAX
"""As in test_worst_requests: others take the caches from the broker."""
REQUESTS = 40
PARTITIONS_MAX = 300


@pytest.fixture(scope="module")
def target(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("creating")
    limits = {"broker.partitions.max": str(PARTITIONS_MAX)}
    gc.disable()
    try:
        with probed_broker(directory, f"{zookeeper_server}/{directory.name}", limits) as target:
            yield target
            print(f"--- log of the broker\n{target.broker.log[-8000:]}")
    finally:
        gc.enable()


def topics_of(target: Target) -> int:
    with RawSocket(target.broker.port) as socket:
        return len(socket.call(MetadataRequest(topics=None), 4).topics)


def test_topics_that_each_request_invents_end_at_the_limit_and_hold_nobody(
    target: Target, tmp_path: Path
) -> None:
    frames = list(islice(creating_frames("invented"), REQUESTS))
    assert REQUESTS * TOPICS_PER_REQUEST > 3 * PARTITIONS_MAX
    broker = target.broker
    with (
        running_neighbour(tmp_path, broker.port, Kind.CLIENT) as client,
        running_neighbour(tmp_path, broker.brokers_port, Kind.CONTROLLER) as controller,
    ):
        client.pace(0, time.monotonic())
        controller.pace(0, time.monotonic())
        target.reset()
        began_s = time.monotonic()
        with RawSocket(broker.port, timeout_s=300) as socket:
            socket.send(b"".join(frames))
            answers = [socket.next_frame() for _ in frames]
        ended_s = time.monotonic()
        target.settle()
        assert all(answers), "the broker has closed the connection"
        assert client.pace(began_s, ended_s).failed == 0
        assert controller.pace(began_s, ended_s).failed == 0
    assert target.turns.longest_ms <= BUSY_TURN_MS_MAX, target.turns.where
    assert 0 < topics_of(target) <= PARTITIONS_MAX
    assert is_serving(target)


def test_the_broker_starts_again_with_what_they_have_left(target: Target) -> None:
    target.broker.restart()
    assert is_serving(target)
