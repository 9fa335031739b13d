"""A network between simulated machines, with delays, losses and cuts. Each connection keeps its order.

Each process name stands for a machine of its own. The broker's own `FrameAssembler` splits bytes into frames,
so the network carries bytes in pieces of any size.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast_log.broker.network.framing import FrameAssembler, FrameBuffers, FrameRefused
from holdfast_log.broker.network.interfaces import Accept, Address, FrameReceiver, Wire
from holdfast_log.protocol.frames import SIZE, Part, join_parts
from tests.models.world import Process, World

_FIRST_FREE_PORT = 40_000
_RETRANSMITTED_SHARE = 0.5
_MEDDLED_MS_MAX = 300.0
_LATE_MS_MAX = 3000.0
_COPY_TIMEOUT_MS = 1000


@dataclass(slots=True)
class Weather:
    """Conditions of the network.

    The delay of each piece is drawn evenly up to `delay_ms_max`, or up to `slow_ms_max` for `slow_share` of
    the pieces. `break_share` of the sends break their connection.
    """

    delay_ms_max: float = 2.0
    slow_share: float = 0.0
    slow_ms_max: float = 200.0
    break_share: float = 0.0


@dataclass(eq=False, slots=True)
class _Listener:
    """A port that a process has open (`broker.network.interfaces.Port`)."""

    network: SimNetwork
    process: Process
    accept: Accept
    address: Address

    def close(self) -> None:
        self.network.close_port(self)


class SimNetwork:
    """All the wires of a world. `for_process` gives one process its `broker.network.interfaces.Network`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self.meddled: dict[int, float] = {}
        """By API key, the share of requests that are lost, delayed, repeated or left without an answer."""
        self.rng = world.rng("network")
        self.buffers = FrameBuffers(keep_bytes=0)
        self._listeners: dict[Address, _Listener] = {}
        self._links: dict[_Link, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._without_power: dict[str, None] = {}
        self._next_port = _FIRST_FREE_PORT

    def for_process(self, process: Process) -> ProcessNetwork:
        process.on_death.append(lambda: self._process_died(process))
        return ProcessNetwork(self, process)

    # Called by the simulation.

    def cut(self, source: str, target: str) -> None:
        """Drop everything that the machine `source` sends to `target`; no connection is reported as lost."""
        self._cut[source, target] = None

    def heal(self) -> None:
        """End every cut. Some of the cut connections break and lose the bytes sent; the others deliver them
        late."""
        self._cut.clear()
        for link in list(self._links):
            link.recover()

    def mend(self, source: str, target: str) -> None:
        """End one cut, in the way that `heal` ends every cut."""
        self._cut.pop((source, target), None)
        for link in list(self._links):
            if {end.process.name for end in link.ends} == {source, target}:
                link.recover()

    def power_off(self, machine: str) -> None:
        """Turn the machine off: it no longer resets connections that it does not know."""
        self._without_power[machine] = None

    def power_on(self, machine: str) -> None:
        self._without_power.pop(machine, None)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def has_power(self, machine: str) -> bool:
        return machine not in self._without_power

    def delay_s(self) -> float:
        weather = self.weather
        longest = weather.slow_ms_max if self.rng.random() < weather.slow_share else weather.delay_ms_max
        return self.rng.random() * longest / 1000

    def _process_died(self, process: Process) -> None:
        for listener in list(self._listeners.values()):
            if listener.process is process:
                listener.close()
        for link in list(self._links):
            for end in link.ends:
                if end.process is process:
                    end.die()

    # Ports and connections

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def open_port(self, process: Process, port: int, accept: Accept) -> _Listener:
        address = Address(process.name, port or self.free_port())
        if address in self._listeners:
            raise OSError(f"{address} is taken")
        listener = self._listeners[address] = _Listener(self, process, accept, address)
        return listener

    def close_port(self, listener: _Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def connect(self, process: Process, to: Address, receiver: FrameReceiver, timeout_ms: int) -> None:
        if not process.alive:
            return
        clock = process.clock
        ways = ((process.name, to.host), (to.host, process.name))
        if not self.has_power(to.host) or any(self.is_cut(*way) for way in ways):
            clock.callLater(timeout_ms / 1000, receiver.connection_lost, "connecting timed out")
            return
        listener = self._listeners.get(to)
        if listener is None:
            clock.callLater(self.delay_s(), receiver.connection_lost, "connection refused")
            return
        here = Address(process.name, self.free_port())
        link = _Link(self, process, listener.process, here, to)
        link.ends[0].receiver = receiver
        self._links[link] = None
        self.world.clock.callLater(self.delay_s(), self._arrive, link, listener)

    def _arrive(self, link: _Link, listener: _Listener) -> None:
        client, server = link.ends
        if self._listeners.get(listener.address) is not listener:
            server.is_over = True
            client.lose("connection refused")
            return
        # The operating system accepts a connection before the process does, even if the process is paused.
        listener.process.run(self._accept, listener, server)
        self.world.clock.callLater(self.delay_s(), client.process.run, self._connected, client)

    def _accept(self, listener: _Listener, server: SimWire) -> None:
        if server.is_over:
            return
        receiver = listener.accept(server.peer)
        if receiver is None:
            server.die()
            return
        server.receiver = receiver
        receiver.connected(server)
        server.deliver()

    def _connected(self, client: SimWire) -> None:
        if client.receiver is not None and not client.is_over:
            client.receiver.connected(client)
            client.deliver()

    def forget(self, link: _Link) -> None:
        self._links.pop(link, None)

    def repeat(self, wire: SimWire, data: bytes) -> None:
        """Send a copy of a request a little later over another connection, as a client does that repeats its
        request without waiting for the answer."""
        self.world.trace("network", f"repeats a request {_api_key(data)} of {wire.address} to {wire.peer}")
        copy = _Copy(data)
        delay_s = self.rng.random() * _MEDDLED_MS_MAX / 1000
        self.world.clock.callLater(delay_s, self.connect, wire.process, wire.peer, copy, _COPY_TIMEOUT_MS)


class _Copy:
    """Sends one frame when it is connected, and closes the connection when an answer comes
    (`FrameReceiver`)."""

    is_holding = False
    frame_bytes_max = 1 << 24

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._wire: SimWire | None = None

    def connected(self, wire: Wire) -> None:
        assert isinstance(wire, SimWire)
        self._wire = wire
        wire.travel(self._data)

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        if self._wire is not None:
            self._wire.close()

    def identified(self, principal: str) -> None:
        """Nothing to do: there is no TLS here."""

    def frame_refused(self, size: int) -> None:
        pass

    def bytes_sent(self, count: int) -> None:
        pass

    def connection_lost(self, reason: str) -> None:
        self._wire = None


class ProcessNetwork:
    """The network as one process sees it (`broker.network.interfaces.Network`)."""

    def __init__(self, network: SimNetwork, process: Process) -> None:
        self.connections: Counter[Address] = Counter()
        """Number of connections that the process has opened, by address."""
        self._network = network
        self._process = process

    def listen(self, host: str, port: int, accept: Accept) -> _Listener:
        return self._network.open_port(self._process, port, accept)

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        address = Address(host, port)
        self.connections[address] += 1
        self._network.connect(self._process, address, receiver, timeout_ms)


class _Link:
    """One connection: two ends and the bytes in flight between them."""

    def __init__(
        self, network: SimNetwork, client: Process, server: Process, client_at: Address, server_at: Address
    ) -> None:
        self.network = network
        self.stalled: list[tuple[SimWire, bytes]] = []
        """Pieces sent during a cut, each with its receiving end."""
        self.lost_the_end = False
        """Whether one end closed during a cut, so that the other end was not notified."""
        near = SimWire(self, client, client_at, server_at)
        far = SimWire(self, server, server_at, client_at)
        near.other, far.other = far, near
        self.ends = (near, far)

    def recover(self) -> None:
        """Deliver the stalled pieces, or break the connection. Called when a cut ends."""
        stalled, self.stalled = self.stalled, []
        network = self.network
        if self.lost_the_end or (stalled and network.rng.random() >= _RETRANSMITTED_SHARE):
            for end in self.ends:
                end.lose("the network lost what was sent")
            return
        for target, piece in stalled:
            target.other.travel(piece)


@dataclass(eq=False, slots=True)
class SimWire:
    """One end of a connection (`broker.network.interfaces.Wire`)."""

    link: _Link
    process: Process
    address: Address
    peer: Address
    receiver: FrameReceiver | None = None
    is_over: bool = False
    other: SimWire = field(init=False)
    _assembler: FrameAssembler = field(init=False)
    _arrived: deque[bytes] = field(init=False, default_factory=deque)
    _is_paused: bool = field(init=False, default=False)
    _is_closing: bool = field(init=False, default=False)
    _last_arrival_s: float = field(init=False, default=0.0)
    _under_way: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        # Targets are filled and emptied in one go, so all wires may share the buffers.
        self._assembler = FrameAssembler(self.link.network.buffers)

    # Called by its process.

    def send(self, parts: Sequence[Part]) -> None:
        if self.is_over or self._is_closing:
            return
        network = self.link.network
        try:
            data = join_parts(parts)
        except (OSError, EOFError) as error:
            network.world.trace(self.process.name, f"cannot read the bytes to send: {error}")
            self._part()
            return
        if network.rng.random() < network.weather.break_share:
            self._break("breaks")
            return
        if network.meddled and self is self.link.ends[0] and self._meddle(data):
            return
        for piece in _pieces(data, network.rng):
            self.travel(piece)

    def _break(self, what: str, within_ms: float = 0.0) -> None:
        """Break the connection. Each end notices it after its own delay, of up to `within_ms` and the usual
        delay of the network."""
        network = self.link.network
        network.world.trace("network", f"{what} {self.address} to {self.peer}")
        for end in self.link.ends:
            delay_s = network.rng.random() * within_ms / 1000 + network.delay_s()
            network.world.clock.callLater(delay_s, end.lose, "connection reset by the network")

    def _meddle(self, data: bytes) -> bool:
        """Draw whether to lose, delay or repeat a request of an API in `meddled`, or to lose its answer.
        Returns whether the request is lost."""
        network, api_key = self.link.network, _api_key(data)
        if network.rng.random() >= network.meddled.get(api_key, 0.0):
            return False
        match network.rng.choice(["lost", "late", "repeated", "answer lost"]):
            case "lost":
                self._break(f"loses a request {api_key} of")
                return True
            case "late":
                late_s = network.rng.random() * _LATE_MS_MAX / 1000
                self._last_arrival_s = max(self._last_arrival_s, network.world.clock.rightNow + late_s)
            case "repeated":
                network.repeat(self, data)
            case _:
                self._break(f"loses the answer to a request {api_key} of", _MEDDLED_MS_MAX)
        return False

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.process.clock.callLater(0, self.deliver)

    def close(self) -> None:
        self._is_closing = True
        if self._under_way == 0:
            self._part()

    def abort(self) -> None:
        self._part()

    def _part(self) -> None:
        """Close this end, and notify the other."""
        if self.is_over:
            return
        receiver = self.receiver
        self._end()
        if receiver is not None:
            self.process.clock.callLater(0, receiver.connection_lost, "the connection was closed")
        self._tell_other("the peer closed the connection")

    def _tell_other(self, reason: str) -> None:
        network = self.link.network
        if network.is_cut(self.process.name, self.other.process.name):
            self.link.lost_the_end = True
            return
        clock = network.world.clock
        delay_s = max(self._last_arrival_s - clock.rightNow, network.delay_s())
        clock.callLater(delay_s, self.other.lose, reason)

    # Called by the network.

    def travel(self, piece: bytes) -> None:
        """Send one piece to the other end."""
        network = self.link.network
        self._under_way += 1
        if network.is_cut(self.process.name, self.other.process.name):
            self.link.stalled.append((self.other, piece))
            self._under_way -= 1
            return
        clock = network.world.clock
        self._last_arrival_s = max(self._last_arrival_s, clock.rightNow + network.delay_s())
        clock.callLater(self._last_arrival_s - clock.rightNow, self._arrive, piece)

    def _arrive(self, piece: bytes) -> None:
        self._under_way -= 1
        if not self.is_over and self.receiver is not None:
            self.process.run(self._sent, len(piece))
        self.other.take(piece)
        if self._is_closing and self._under_way == 0:
            self._part()

    def _sent(self, count: int) -> None:
        if self.receiver is not None and not self.is_over:
            self.receiver.bytes_sent(count)

    def take(self, piece: bytes) -> None:
        if not self.is_over:
            self._arrived.append(piece)
            self.process.run(self.deliver)
        elif self.link.network.has_power(self.process.name):
            # The machine does not know this connection any more, so it resets the connection.
            self._tell_other("connection reset by peer")

    def deliver(self) -> None:
        """Hand over what has arrived. Runs in this end's process."""
        while self._arrived and self.receiver is not None and not self._is_paused and not self.is_over:
            data = self._arrived.popleft()
            target = self._assembler.target()
            count = min(len(target), len(data))
            target[:count] = data[:count]
            if count < len(data):
                self._arrived.appendleft(data[count:])
            try:
                frames = self._assembler.received(count, self.receiver.frame_bytes_max)
            except FrameRefused as refused:
                if refused.frames:
                    self.receiver.frames_received(refused.frames)
                if self.receiver is not None:
                    self.receiver.frame_refused(refused.size)
                return
            if frames:
                self.receiver.frames_received(frames)

    def die(self) -> None:
        """End this end's process. Its system resets the connection, unless the whole machine lost power."""
        if self.is_over:
            return
        self._end()
        if self.link.network.has_power(self.process.name):
            self._tell_other("connection reset by peer")

    def lose(self, reason: str) -> None:
        """Report the connection as lost to this end's process."""
        if self.is_over:
            return
        receiver = self.receiver
        self._end()
        if receiver is not None:
            self.process.run(receiver.connection_lost, reason)

    def _end(self) -> None:
        self.is_over = True
        self.receiver = None
        self._arrived.clear()
        if self.other.is_over:
            self.link.network.forget(self.link)


def _api_key(data: bytes) -> int:
    """The API key of the request in a frame."""
    return int.from_bytes(data[SIZE.size : SIZE.size + 2], "big", signed=True)


def _pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """Split `data` into the pieces that arrive: mostly one, sometimes two."""
    if len(data) < 2 or rng.random() < 0.8:
        return [data]
    cut = rng.randrange(1, len(data))
    return [data[:cut], data[cut:]]
