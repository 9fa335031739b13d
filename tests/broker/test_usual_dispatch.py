"""The compiled way of a usual request to its shortcut, and Python's, do the same, whatever is sent."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.requests import dispatch
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import World, fetch_request, produce_request
from tests.models.batches import batch

compiled: Any = dispatch._compiled
if compiled is None:
    reason = "broker/requests/_usual_dispatch.c was not compiled, or HOLDFAST_PURE_PYTHON is set"
    pytest.skip(reason, allow_module_level=True)


class Counted:
    """Counts the requests that the compiled function carried out, and those that it left to Python."""

    def __init__(self) -> None:
        self.done = self.left = 0

    def dispatch(self, *arguments: Any) -> Any:
        begun = compiled.dispatch(*arguments)
        if begun is True:
            self.done += 1
        else:
            self.left += 1
        return begun


def state_of(world: World) -> Any:
    rows: list[Any] = [len(world.replicas.readers)]
    for partition in world.replicas:
        rows += [partition.key, partition.high_watermark, partition.log.log_end_offset]
    for kind, all_times in sorted(world.dispatcher.times().items()):
        rows += [(kind, times.version, times.count, times.untimed, list(times.latest)) for times in all_times]
    return rows


class Twins(TwinBrokers):
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted = Counted()
        super().__init__(directory, monkeypatch, dispatch, self.counted, state_of, 3)
        self.both(lambda world: world.assign("t"))

    def client_ids(self) -> list[list[str]]:
        return [[client.connection.client_id for client in clients] for clients in self.clients]


def frame_of(request: Request[Any], version: int, client_id: str | None = "test") -> bytes:
    return join_parts(encode_request(request, version, 7, client_id))[4:]


def drawn(rng: random.Random, topic_id: Any) -> bytes:
    """A request, usual as it is or with a byte that another one has written."""
    client_id = rng.choice(("test", "test", "test", "another", "", None))
    kind = rng.random()
    if kind < 0.5:
        request: Request[Any] = produce_request("t", batch(b"a"), acks=rng.choice((1, -1)))
        frame = bytearray(frame_of(request, rng.randrange(3, 12), client_id))
    elif kind < 0.9:
        request = fetch_request(topic_id, rng.randrange(3), max_wait_ms=rng.choice((0, 300)))
        frame = bytearray(frame_of(request, rng.randrange(13, 17), client_id))
    else:
        frame = bytearray(frame_of(ApiVersionsRequest(), rng.randrange(4), client_id))
    if rng.random() < 0.15:
        frame[rng.randrange(min(30, len(frame)))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del frame[rng.randrange(len(frame)) :]
    return bytes(frame)


@pytest.mark.parametrize("seed", range(4))
def test_both_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng, twins = random.Random(seed), Twins(tmp_path, monkeypatch)
    topic_id = twins.worlds[0].topic_id("t")
    for _ in range(300):
        twins.send_both(drawn(rng, topic_id), rng.randrange(3))
        twins.both(lambda world: world.clock.advance(0.1))
        twins.answers()
        ours, theirs = twins.client_ids()
        assert ours == theirs
        twins.reopen()
    assert twins.counted.done > 50
    assert twins.counted.left > 20


def test_a_request_is_usual_while_its_client_calls_itself_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path, monkeypatch)
    frame = frame_of(produce_request("t", batch(b"a"), acks=1), 11, "one")
    for client_id, done in (("one", 0), ("one", 1), ("other", 1), ("other", 2), ("one", 2)):
        frame = frame_of(produce_request("t", batch(b"a"), acks=1), 11, client_id)
        twins.send_both(frame, 0)
        assert len(twins.answers()[0]) == 1
        assert twins.client_ids() == [[client_id, "", ""]] * 2
        assert twins.counted.done == done


def test_a_shortcut_that_raises_closes_the_connection_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path, monkeypatch)
    frame = frame_of(produce_request("t", batch(b"a"), acks=1), 11, "")

    def fail(*arguments: Any) -> Any:
        raise ValueError("no good")

    for world in twins.worlds:
        routes = world.dispatcher._broker_routes
        for form, route in routes.items():
            if route.shortcut is not None:
                routes[form] = route._replace(shortcut=fail)
    twins.send_both(frame, 0)
    assert all(clients[0].connection.is_closed for clients in twins.clients)


def test_requests_keep_no_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(tmp_path, monkeypatch)
    frame = frame_of(produce_request("t", batch(b"a"), acks=1), 11, "test")
    cut = frame_of(ApiVersionsRequest(), 3, "test")
    for _ in range(3):
        twins.send_both(frame, 0)
    connection = twins.clients[0][0].connection

    def references() -> tuple[int, ...]:
        route = twins.worlds[0].dispatcher._broker_routes[int.from_bytes(frame[:4], "big")]
        return sys.getrefcount(connection), sys.getrefcount(route), sys.getrefcount(route.times)

    before = references()
    for _ in range(50):
        twins.send_both(frame, 0)
        twins.send_both(cut, 0)
    assert references() == before
