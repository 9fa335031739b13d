"""A network between simulated processes: slow, lossy, torn apart, but in order within one connection.

Frames are cut by the broker's own `FrameAssembler`, so what travels are bytes in pieces of any size.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.network.framing import FrameAssembler, FrameBuffers, FrameRefused
from broker.network.interfaces import Accept, Address, FrameReceiver
from protocol.frames import FileSlice, Part
from tests.sim.world import Process, World

_FIRST_FREE_PORT = 40_000


@dataclass(slots=True)
class Weather:
    """How the network is. `delay_ms` is drawn evenly up to the maximum for every piece; `slow_share` of the
    pieces take `slow_ms_max` instead; `break_share` of them break their connection."""

    delay_ms_max: float = 2.0
    slow_share: float = 0.0
    slow_ms_max: float = 200.0
    break_share: float = 0.0


@dataclass(slots=True)
class _Listener:
    process: Process
    accept: Accept
    address: Address
    network: SimNetwork

    def close(self) -> None:
        self.network.listeners.pop(self.address.port, None)


class SimNetwork:
    """All the wires of a world. `for_process` gives one process its `broker.network.interfaces.Network`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self.rng = world.rng("network")
        self.listeners: dict[int, _Listener] = {}
        self.links: dict[_Link, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._next_port = _FIRST_FREE_PORT

    def for_process(self, process: Process) -> ProcessNetwork:
        process.on_death.append(lambda: self._process_died(process))
        return ProcessNetwork(self, process)

    # What the simulation does to it.

    def cut(self, source: str, target: str) -> None:
        """Nothing sent by the process named `source` reaches `target` any more; nobody is told."""
        self._cut[source, target] = None

    def heal(self) -> None:
        """Mend every cut. What was sent into one is lost, so the connections concerned break."""
        for link in list(self.links):
            if link.lost_something:
                link.break_off("the network lost what was sent")
        self._cut.clear()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def delay_s(self) -> float:
        weather = self.weather
        longest = weather.slow_ms_max if self.rng.random() < weather.slow_share else weather.delay_ms_max
        return self.rng.random() * longest / 1000

    def _process_died(self, process: Process) -> None:
        for port, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[port]
        for link in list(self.links):
            for end in link.ends:
                if end.process is process:
                    end.die()

    # Connections

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def connect(
        self, process: Process, host: str, port: int, receiver: FrameReceiver, timeout_ms: int
    ) -> None:
        listener = self.listeners.get(port)
        client = Address("client." + process.name, self.free_port())
        if listener is None:
            process.clock.callLater(self.delay_s(), receiver.connection_lost, "connection refused")
            return
        there = listener.process
        if self.is_cut(process.name, there.name) or self.is_cut(there.name, process.name):
            process.clock.callLater(timeout_ms / 1000, receiver.connection_lost, "connecting timed out")
            return
        link = _Link(self, process, there, client, listener.address)
        link.ends[0].receiver = receiver
        self.links[link] = None
        self.world.clock.callLater(self.delay_s(), self._arrive, link, listener, timeout_ms)

    def _arrive(self, link: _Link, listener: _Listener, timeout_ms: int) -> None:
        client, server = link.ends
        if self.listeners.get(listener.address.port) is not listener:
            client.lose("connection refused")
            return

        def accept() -> None:
            # The system accepts before the process does: a paused one has connections it knows nothing of.
            receiver = listener.accept(client.address)
            if receiver is None:
                server.die()
                return
            server.receiver = receiver
            receiver.connected(server)
            server.deliver()

        def connected() -> None:
            if client.receiver is not None and not client.is_over:
                client.receiver.connected(client)
                client.deliver()

        listener.process.run(accept)
        self.world.clock.callLater(self.delay_s(), client.process.run, connected)


class ProcessNetwork:
    """The network as one process sees it (`broker.network.interfaces.Network`)."""

    def __init__(self, network: SimNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    def listen(self, host: str, port: int, accept: Accept) -> _Listener:
        port = port or self._network.free_port()
        if port in self._network.listeners:
            raise OSError(f"port {port} is taken")
        listener = _Listener(self._process, accept, Address(host, port), self._network)
        self._network.listeners[port] = listener
        return listener

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        self._network.connect(self._process, host, port, receiver, timeout_ms)


class _Link:
    """One connection: two ends and what is under way between them."""

    def __init__(
        self, network: SimNetwork, client: Process, server: Process, client_at: Address, server_at: Address
    ) -> None:
        self.network = network
        self.lost_something = False
        near = SimWire(self, client, client_at, server_at)
        far = SimWire(self, server, server_at, client_at)
        near.other, far.other = far, near
        self.ends = (near, far)

    def break_off(self, reason: str) -> None:
        for end in self.ends:
            end.lose(reason)


@dataclass(eq=False)
class SimWire:
    """One end of a connection (`broker.network.interfaces.Wire`)."""

    link: _Link
    process: Process
    address: Address
    peer: Address
    receiver: FrameReceiver | None = None
    is_over: bool = False
    other: SimWire = field(init=False)

    def __post_init__(self) -> None:
        self._assembler = FrameAssembler(FrameBuffers(keep_bytes=0))
        self._arrived: deque[bytes] = deque()
        self._is_paused = False
        self._is_closing = False
        self._last_arrival_s = 0.0
        self._under_way = 0

    # What its process does with it.

    def send(self, parts: Sequence[Part]) -> None:
        if self.is_over or self._is_closing:
            return
        data = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
        network = self.link.network
        if network.rng.random() < network.weather.break_share:
            network.world.trace("network", f"breaks {self.address} to {self.peer}")
            self.link.break_off("connection reset by the network")
            return
        for piece in _pieces(data, network.rng):
            self._travel(piece)

    def _travel(self, piece: bytes) -> None:
        network = self.link.network
        if network.is_cut(self.process.name, self.other.process.name):
            self.link.lost_something = True
            return
        clock = network.world.clock
        self._last_arrival_s = max(self._last_arrival_s, clock.rightNow + network.delay_s())
        self._under_way += 1
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
        """This end goes, and tells the other unless the network is cut."""
        if self.is_over:
            return
        self.lose("the connection was closed")
        network = self.link.network
        if network.is_cut(self.process.name, self.other.process.name):
            self.link.lost_something = True
            return
        clock = network.world.clock
        delay_s = max(self._last_arrival_s - clock.rightNow, network.delay_s())
        clock.callLater(delay_s, self.other.lose, "the peer closed the connection")

    # What the network does with it.

    def take(self, piece: bytes) -> None:
        if self.is_over:
            return
        self._arrived.append(piece)
        self.process.run(self.deliver)

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
                if not self.is_over:
                    self.receiver.frame_refused(refused.size)
                return
            if frames:
                self.receiver.frames_received(frames)

    def die(self) -> None:
        """The process of this end is gone; its system resets the connection, unless the network is cut."""
        self.is_over = True
        self.receiver = None
        self._arrived.clear()
        network = self.link.network
        if network.is_cut(self.process.name, self.other.process.name):
            self.link.lost_something = True
            return
        network.world.clock.callLater(network.delay_s(), self.other.lose, "connection reset by peer")

    def lose(self, reason: str) -> None:
        """The connection is gone for this end."""
        if self.is_over:
            return
        self.is_over = True
        self._arrived.clear()
        if self.other.is_over:
            self.link.network.links.pop(self.link, None)
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            self.process.run(receiver.connection_lost, reason)


def _pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """`data` as it arrives: mostly whole, sometimes in two."""
    if len(data) < 2 or rng.random() < 0.8:
        return [data]
    cut = rng.randrange(1, len(data))
    return [data[:cut], data[cut:]]
