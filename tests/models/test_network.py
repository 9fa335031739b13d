"""The simulated network delays, resets and breaks connections as a real one does, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast_log.broker.network.interfaces import Address, Wire
from holdfast_log.protocol.frames import SIZE, FileSlice
from tests.models.network import SimNetwork, SimWire, Weather
from tests.models.world import Process, World


class End:
    """One side of a connection that records its callbacks."""

    is_holding = False

    def __init__(self, frame_bytes_max: int = 1000) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.wire: Wire | None = None
        self.frames: list[bytes] = []
        self.sent = 0
        self.refused: int | None = None
        self.lost: list[str] = []

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        self.frames += [bytes(frame) for frame in frames]

    def identified(self, principal: str) -> None:
        """Nothing to do: there is no TLS here."""

    def frame_refused(self, size: int) -> None:
        self.refused = size

    def bytes_sent(self, count: int) -> None:
        self.sent += count

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def send(self, *frames: bytes) -> None:
        assert self.wire is not None
        self.wire.send([SIZE.pack(len(frame)) + frame for frame in frames])


class Pair:
    """A server and a client on two machines."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = SimNetwork(self.world)
        self.server, self.client = Process(self.world, "server"), Process(self.world, "client")
        self.accepted: list[End] = []
        self.there = self.network.for_process(self.server)
        self.here = self.network.for_process(self.client)
        self.port = self.there.listen("server", 9092, self._accept)

    def _accept(self, peer: Address) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    def connect(self, port: int = 9092) -> End:
        end = End()
        self.here.connect("server", port, end, 1000)
        return end

    def joined(self) -> tuple[End, End]:
        end = self.connect()
        self.world.run(1)
        assert end.wire is not None
        return end, self.accepted[-1]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_frames_arrive_whole_and_in_order_however_they_are_split(pair: Pair) -> None:
    client, server = pair.joined()
    sent = [bytes([number]) * (number * 7) for number in range(50)]
    for frame in sent:
        client.send(frame)
    server.send(b"back")
    pair.world.run(1)
    assert server.frames == sent
    assert client.frames == [b"back"]
    assert client.sent == sum(len(frame) + SIZE.size for frame in sent)


def test_frames_of_different_connections_may_overtake_each_other(pair: Pair) -> None:
    ends = [pair.joined() for _ in range(10)]
    order: list[int] = []
    for client, _ in ends:
        client.send(b"x")
    while len(order) < len(ends):
        pair.world.clock.step(pair.world.clock.rightNow + 1)
        order += [n for n, (_, server) in enumerate(ends) if server.frames and n not in order]
    assert sorted(order) == list(range(10))
    assert order != sorted(order)


def test_a_frame_that_is_too_large_is_refused_after_those_before_it(pair: Pair) -> None:
    client, server = pair.joined()
    client.send(b"small", b"x" * 1001)
    pair.world.run(1)
    assert (server.frames, server.refused) == ([b"small"], 1001)


def test_a_paused_wire_hands_over_later(pair: Pair) -> None:
    client, server = pair.joined()
    assert server.wire is not None
    server.wire.pause()
    client.send(b"x")
    pair.world.run(1)
    assert server.frames == []
    server.wire.resume()
    pair.world.run(1)
    assert server.frames == [b"x"]


def test_closing_sends_queued_bytes_and_reports_once_to_both_ends(pair: Pair) -> None:
    client, server = pair.joined()
    assert client.wire is not None
    client.send(b"last")
    client.wire.close()
    client.send(b"too late")
    pair.world.run(1)
    assert server.frames == [b"last"]
    assert len(client.lost) == len(server.lost) == 1
    client.wire.abort()
    pair.world.run(1)
    assert len(client.lost) == 1


def test_connecting_to_a_closed_port_fails(pair: Pair) -> None:
    refused = pair.connect(port=1)
    pair.port.close()
    closed = pair.connect()
    pair.network.power_off("server")
    dark = pair.connect()
    pair.world.run(0.5)
    assert refused.lost == closed.lost == ["connection refused"]
    assert dark.lost == []
    pair.world.run(1)
    assert dark.lost == ["connecting timed out"]


def test_a_killed_process_resets_its_connections(pair: Pair) -> None:
    client, server = pair.joined()
    pair.server.kill()
    pair.world.run(1)
    assert client.lost == ["connection reset by peer"]
    assert server.lost == []


def test_a_machine_without_power_leaves_connections_half_open(pair: Pair) -> None:
    client, _ = pair.joined()
    pair.network.power_off("server")
    pair.server.kill()
    client.send(b"into the dark")
    pair.world.run(100)
    assert client.lost == []
    pair.network.power_on("server")
    client.send(b"who is there")
    pair.world.run(1)
    assert client.lost == ["connection reset by peer"]


def test_a_connection_to_a_paused_process_is_accepted_when_it_resumes(pair: Pair) -> None:
    pair.server.pause()
    client, before = pair.connect(), len(pair.accepted)
    pair.world.run(1)
    client.send(b"x")
    pair.world.run(1)
    assert client.wire is not None
    assert len(pair.accepted) == before
    pair.server.resume()
    assert pair.accepted[-1].frames == [b"x"]


def test_bytes_sent_during_a_cut_arrive_late_or_the_connection_breaks() -> None:
    outcomes = set()
    for seed in range(20):
        pair = Pair(seed)
        client, server = pair.joined()
        pair.network.cut("client", "server")
        client.send(b"x")
        server.send(b"y")
        pair.world.run(10)
        assert (server.frames, client.frames, client.lost) == ([], [b"y"], [])
        pair.network.heal()
        pair.world.run(1)
        assert bool(server.frames) != bool(client.lost)
        assert bool(server.lost) == bool(client.lost)
        outcomes.add(bool(client.lost))
    assert outcomes == {True, False}


def test_mending_one_direction_leaves_the_other_cut() -> None:
    is_sent_late = set()
    for seed in range(20):
        pair = Pair(seed)
        client, server = pair.joined()
        pair.network.cut("client", "server")
        pair.network.cut("server", "client")
        client.send(b"x")
        pair.network.mend("client", "server")
        pair.world.run(1)
        assert pair.network.is_cut("server", "client")
        assert bool(server.frames) != bool(client.lost)
        is_sent_late.add(bool(server.frames))
    assert is_sent_late == {True, False}


def test_an_end_closed_during_a_cut_is_reported_after_the_cut(pair: Pair) -> None:
    _, server = pair.joined()
    pair.network.cut("client", "server")
    pair.client.kill()
    pair.world.run(10)
    assert server.lost == []
    pair.network.heal()
    pair.world.run(1)
    assert len(server.lost) == 1


def test_bad_weather_breaks_connections(pair: Pair) -> None:
    client, server = pair.joined()
    pair.network.weather = Weather(break_share=1.0)
    client.send(b"x")
    pair.world.run(1)
    assert server.frames == []
    assert len(client.lost) == len(server.lost) == 1


MEDDLED = b"\0\7 meddled"
"""A request of API 7."""


def test_requests_of_a_meddled_api_are_lost_late_repeated_or_unanswered() -> None:
    outcomes = set()
    for seed in range(60):
        pair = Pair(seed)
        pair.network.meddled[7] = 1.0
        client, server = pair.joined()
        client.send(MEDDLED)
        pair.world.run(0.4)
        frames = [frame for end in pair.accepted for frame in end.frames]
        is_early = len(frames)
        pair.world.run(5)
        frames = [frame for end in pair.accepted for frame in end.frames]
        assert set(frames) <= {MEDDLED}
        assert bool(client.lost) == bool(server.lost)
        outcomes.add((is_early, len(frames), bool(client.lost)))
    lost, answer_lost = (0, 0, True), (1, 1, True)
    late, repeated, slightly_late = (0, 1, False), (2, 2, False), (1, 1, False)
    assert outcomes == {lost, answer_lost, late, repeated, slightly_late}


def test_a_repeated_request_arrives_over_another_connection_which_closes_at_the_answer() -> None:
    for seed in range(60):
        pair = Pair(seed)
        pair.network.meddled[7] = 1.0
        client, first = pair.joined()
        client.send(MEDDLED)
        pair.world.run(1)
        if len(pair.accepted) == 2:
            second = pair.accepted[1]
            first.send(b"answer")
            second.send(b"answer")
            pair.world.run(1)
            assert (client.frames, client.lost) == ([b"answer"], [])
            assert len(second.lost) == 1
            return
    pytest.fail("no request was repeated")


def test_only_requests_of_meddled_apis_are_troubled(pair: Pair) -> None:
    pair.network.meddled[7] = 1.0
    client, server = pair.joined()
    for _ in range(20):
        client.send(b"\0\x08 other")
        server.send(MEDDLED)
    pair.world.run(1)
    assert len(server.frames) == len(client.frames) == 20
    assert client.lost == server.lost == []


def test_the_network_meddles_with_the_given_share_of_requests() -> None:
    troubled = 0
    for seed in range(200):
        pair = Pair(seed)
        pair.network.meddled[7] = 0.5
        client, server = pair.joined()
        client.send(MEDDLED)
        pair.world.run(0.01)
        troubled += server.frames != [MEDDLED] or bool(client.lost)
        pair.world.run(5)
    assert 50 < troubled < 150


def test_a_slow_share_takes_longer_and_keeps_the_order(pair: Pair) -> None:
    client, server = pair.joined()
    pair.network.weather = Weather(delay_ms_max=1.0, slow_share=0.5, slow_ms_max=10_000.0)
    sent = [bytes([number]) for number in range(20)]
    for frame in sent:
        client.send(frame)
    pair.world.run(0.1)
    assert server.frames != sent
    pair.world.run(10)
    assert server.frames == sent


def test_a_wire_never_raises(pair: Pair) -> None:
    class Broken:
        def fileno(self) -> int:
            raise OSError

        def pread(self, length: int, offset: int) -> bytes:
            raise OSError(5, "broken")

    client, server = pair.joined()
    assert isinstance(client.wire, SimWire)
    client.wire.send([FileSlice(Broken(), 0, 10)])
    pair.world.run(1)
    assert len(client.lost) == len(server.lost) == 1
