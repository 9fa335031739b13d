"""Kernel TLS: used only where the system says that it encrypts, and never anything but encrypted.

The tests at the end need a kernel that has it; scripts/kernel-tls-test.sh boots one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.network.connection import FrameHandler, ReplySlot, ServerConnection
from holdfast_log.broker.network.outgoing import SliceTooLong
from holdfast_log.broker.network.tls import identity as identities
from holdfast_log.broker.network.tls import kernel
from holdfast_log.broker.network.tls.kernel import (
    KernelKeys,
    KernelOutgoing,
    KeysReplaced,
    kernel_keys,
    lacks,
)
from holdfast_log.protocol.compiled import WIRE
from holdfast_log.protocol.frames import SIZE, FileSlice, Part
from tests.broker.network.served import framed
from tests.broker.network.tls.peers import (
    AUTHORITY,
    Server,
    client_context,
    connected,
    identity,
    plain,
    serving,
)
from tests.reactor import in_thread, on_reactor, until

TLS_1_2, TLS_1_3 = 0x0303, 0x0304
AES_128, AES_256, UNKNOWN = 51, 52, 55
ENABLED = 1 << 3

needs_kernel_tls = pytest.mark.skipif(
    lacks() is not None and "HOLDFAST_KERNEL_TLS" not in os.environ,
    reason=f"this system cannot encrypt: {lacks()}. scripts/kernel-tls-test.sh runs the test",
)


class KernelSocket(socket.socket):
    """One end of a pair of sockets that says of itself what a socket with kernel TLS does."""

    names: bytes | OSError = OSError(errno.ENOPROTOOPT, "no TLS")
    number = 0
    owes = 0
    """Records that OpenSSL sends when it is told to send nothing; -1 if the socket is full."""

    def send(self, data: Any, flags: int = 0) -> int:
        assert not data, "given to OpenSSL"
        if self.owes < 0:
            raise BlockingIOError(errno.EWOULDBLOCK, "full")
        self.number += self.owes
        return 0

    def getsockopt(self, level: int, optname: int, buflen: int = 0) -> Any:
        assert (level, optname) == (282, 1)
        if isinstance(self.names, OSError):
            raise self.names
        if buflen == 4:
            return self.names
        return self.names + bytes(buflen - 12) + struct.pack(">Q", self.number)


@contextlib.contextmanager
def socket_pair(version: int, cipher: int) -> Iterator[tuple[KernelSocket, socket.socket]]:
    one, other = socket.socketpair()
    with KernelSocket(fileno=one.detach()) as own, other:
        own.names = struct.pack("=HH", version, cipher)
        own.setblocking(False)
        other.settimeout(60)
        yield own, other


def keys_of(own: socket.socket) -> KernelKeys:
    keys = kernel_keys(own)
    assert keys is not None
    return keys


def sliced(tmp_path: Path, data: bytes) -> OsFile:
    path = tmp_path / "segment"
    path.write_bytes(data)
    return OsFile(str(path))


class NeverRead(OsFile):
    """A file whose bytes must not pass through this process."""

    def pread(self, length: int, offset: int) -> bytes:
        raise AssertionError("the slice is read, not sent from its file")


# Whether the system encrypts


@pytest.mark.parametrize(
    "number", [errno.ENOPROTOOPT, errno.EBUSY, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF]
)
def test_a_socket_that_the_system_does_not_encrypt_has_no_keys(number: int) -> None:
    with socket_pair(TLS_1_3, AES_256) as (own, _):
        own.names = OSError(number, os.strerror(number))
        assert kernel_keys(own) is None


def test_plain_sockets_of_this_system_have_no_keys() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as own,
    ):
        assert kernel_keys(own) is None


def test_a_cipher_whose_records_cannot_be_counted_is_left_to_openssl() -> None:
    with socket_pair(TLS_1_3, UNKNOWN) as (own, _):
        assert kernel_keys(own) is None


def test_why_the_system_cannot_encrypt_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ulps = tmp_path / "tcp_available_ulp"
    monkeypatch.setattr(kernel, "ULPS", str(ulps))
    monkeypatch.setattr(ssl, "OPENSSL_VERSION_INFO", (3, 0, 0, 19, 0))
    monkeypatch.setattr(ssl, "OPENSSL_VERSION", "OpenSSL 3.0.19 27 Jan 2026")
    assert "cannot be read" in (lacks() or "")
    ulps.write_text("espintcp mptcp mytls\n")
    assert "modprobe tls" in (lacks() or "")
    ulps.write_text("espintcp mptcp tls\n")
    assert lacks() is None
    monkeypatch.setattr(ssl, "OPENSSL_VERSION", "LibreSSL 3.9")
    assert "LibreSSL" in (lacks() or "")
    monkeypatch.setattr(ssl, "OPENSSL_VERSION", "OpenSSL 1.1.1w")
    monkeypatch.setattr(ssl, "OPENSSL_VERSION_INFO", (1, 1, 1, 23, 15))
    assert "1.1.1" in (lacks() or "")


@pytest.mark.parametrize(
    ("setting", "lacking", "is_enabled"),
    [("auto", None, True), ("auto", "no module", False), ("never", None, False)],
)
def test_openssl_gives_its_keys_away_only_if_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, lacking: str | None, is_enabled: bool
) -> None:
    monkeypatch.setattr(identities, "lacks", lambda: lacking)
    made = identity(tmp_path, ssl_kernel_tls=setting).current
    for context in (made.accepting, made.connecting):
        assert bool(int(context.options) & ENABLED) == is_enabled
    assert made.encryption.startswith("the kernel" if is_enabled else "OpenSSL, because")


# What is sent when it does


@pytest.fixture(params=["compiled", "in Python"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in Python":
        monkeypatch.setattr(kernel, "WIRE", None)
    elif WIRE is None:
        pytest.skip("nothing is compiled")


@pytest.mark.usefixtures("wire")
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_memory_and_slices_are_sent_in_their_order_and_slices_from_their_files(
    tmp_path: Path, version: int
) -> None:
    data = os.urandom(2_000_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = NeverRead(str(path))
    waiting: list[Part] = [
        b"begin",
        FileSlice(file, 7, 1_900_000),
        b"mid",
        b"dle",
        FileSlice(file, 0, 10),
        b"end",
    ]
    expected = b"begin" + data[7:1_900_007] + b"middle" + data[:10] + b"end"
    received = bytearray()
    with socket_pair(version, AES_128) as (own, other):
        outgoing = KernelOutgoing(keys_of(own), waiting)
        while outgoing:
            sent = outgoing.send_some(own, -1)
            own.number += 1  # Records of its own.
            assert sent or len(received) < len(expected)
            received += other.recv(300_000)
        while len(received) < len(expected):
            received += other.recv(300_000)
    assert received == expected
    file.close()


@pytest.mark.usefixtures("wire")
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_a_record_of_openssls_own_ends_the_sending_in_tls_1_3(tmp_path: Path, version: int) -> None:
    file = sliced(tmp_path, bytes(100))
    with socket_pair(version, AES_256) as (own, other):
        outgoing = KernelOutgoing(keys_of(own), [b"first"])
        assert outgoing.send_some(own, own.fileno()) == 5
        assert other.recv(10) == b"first"
        outgoing.add([b"second", FileSlice(file, 0, 100)])
        own.owes = -1
        assert version == TLS_1_2 or outgoing.send_some(own, own.fileno()) == 0, "it waits for the answer"
        own.owes = 1
        if version == TLS_1_2:  # Its keys stay, whatever OpenSSL says.
            assert outgoing.send_some(own, own.fileno()) > 0
            return
        with pytest.raises(KeysReplaced, match="KeyUpdate"):
            outgoing.send_some(own, own.fileno())
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(10)
    file.close()


@pytest.mark.usefixtures("wire")
def test_nothing_is_sent_once_the_system_has_no_keys_any_more() -> None:
    with socket_pair(TLS_1_3, AES_256) as (own, other):
        outgoing = KernelOutgoing(keys_of(own), [b"secret"])
        own.names = OSError(errno.ENOPROTOOPT, "no TLS")
        with pytest.raises(OSError, match="no TLS"):
            outgoing.send_some(own, own.fileno())
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(10)


@pytest.mark.usefixtures("wire")
def test_a_slice_of_a_cut_file_is_found_out(tmp_path: Path) -> None:
    file = sliced(tmp_path, b"short")
    with socket_pair(TLS_1_3, AES_256) as (own, _):
        outgoing = KernelOutgoing(keys_of(own), [FileSlice(file, 0, 100)])
        with pytest.raises(SliceTooLong):
            for _ in range(3):
                outgoing.send_some(own, own.fileno())
    file.close()


# A whole server, on any system


class Relay:
    """Passes bytes between one client and a server, and keeps what the server has sent."""

    def __init__(self, server: Server) -> None:
        self.seen = bytearray()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._to = (server.address.host, server.address.port)
        self.address = self._listening.getsockname()
        self._client: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        server = socket.create_connection(self._to)
        threading.Thread(target=self._pass, args=(client, server, None), daemon=True).start()
        self._pass(server, client, self.seen)

    def _pass(self, source: socket.socket, target: socket.socket, seen: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if seen is not None:
                    seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listening.close()


MARK = b"what nobody else may read"


def _through(relay: Relay, context: ssl.SSLContext, wanted: int) -> bytes:
    with (
        socket.create_connection(relay.address, 60) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as stream,
    ):
        stream.sendall(framed(b"x"))
        received = bytearray()
        while len(received) < wanted:
            data = stream.recv(1 << 16)
            if not data:
                break
            received += data
        return bytes(received)


def _of_version(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    return context


def _sending(*parts: Part) -> FrameHandler:
    def sending(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([SIZE.pack(sum(map(len, parts))), *parts])

    return sending


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
@on_reactor
async def test_what_a_file_and_memory_have_is_not_seen_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    """With the option set, whatever this system's kernel makes of it."""
    monkeypatch.setattr(identities, "lacks", lambda: None)
    data = MARK * 20_000
    file = sliced(tmp_path, data)
    handler = _sending(MARK, FileSlice(file, 0, len(data)), MARK)
    with serving(identity(tmp_path), handler) as server:
        relay = Relay(server)
        wanted = 4 + len(data) + 2 * len(MARK)
        received = await in_thread(_through, relay, _of_version(version), wanted)
        assert received == SIZE.pack(wanted - 4) + MARK + data + MARK
        assert len(relay.seen) > wanted
        assert MARK not in relay.seen
        relay.close()
    file.close()


@on_reactor
async def test_where_the_system_does_not_encrypt_nothing_is_sent_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> int:
        raise AssertionError("sent without OpenSSL")

    monkeypatch.setattr(identities, "lacks", lambda: "it must not")
    monkeypatch.setattr(os, "sendfile", nothing)
    monkeypatch.setattr(KernelOutgoing, "send_some", nothing)
    data = os.urandom(300_000)
    file = sliced(tmp_path, data)
    sending = _sending(FileSlice(file, 0, len(data)))
    with serving(identity(tmp_path), sending) as server, await connected(server) as peer:
        await peer.send(framed(b"x"))
        assert await peer.receive(4 + len(data)) == SIZE.pack(len(data)) + data
        assert (server.handshakes.succeeded_kernel, server.handshakes.succeeded_openssl) == (0, 1)
    file.close()


@on_reactor
async def test_what_waits_for_the_handshake_is_sent_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "lacks", lambda: None)
    with serving(identity(tmp_path)) as server, plain(server) as raw:
        await until(lambda: len(server.connections) == 1)
        wire: Any = server.connections[0]._wire
        wire.send([framed(b"early")])
        stream = await in_thread(lambda: client_context().wrap_socket(raw, server_hostname="localhost"))
        assert await in_thread(stream.recv, 100) == framed(b"early")
        stream.close()


@pytest.mark.parametrize("is_current", [True, False])
@on_reactor
async def test_the_end_is_not_said_with_keys_that_the_peer_has_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_current: bool
) -> None:
    monkeypatch.setattr(identities, "lacks", lambda: "it must not")
    with serving(identity(tmp_path)) as server, await connected(server) as peer:
        await peer.send(framed(b"x"))
        assert await peer.receive(5) == framed(b"x")
        wire: Any = server.connections[0]._wire
        keys = wire._stream.kernel = KernelKeys(0)
        keys.are_current = is_current
        server.connections[0].close_when_sent("enough")
        peer.stream.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        if is_current:
            assert await in_thread(peer.stream.recv, 1) == b""
            return
        with pytest.raises(ssl.SSLEOFError):
            await in_thread(peer.stream.recv, 1)


# With a kernel that encrypts


class FromKernel:
    """What the system has counted since this was made: connections whose sending it encrypts."""

    def __init__(self) -> None:
        self._began = self._now()

    def _now(self) -> int:
        lines = Path("/proc/net/tls_stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("TlsTxSw"))

    @property
    def count(self) -> int:
        return self._now() - self._began


SUITES = pytest.mark.parametrize(
    ("version", "suites"),
    [
        (ssl.TLSVersion.TLSv1_2, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        (ssl.TLSVersion.TLSv1_2, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (ssl.TLSVersion.TLSv1_2, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        (ssl.TLSVersion.TLSv1_3, ""),
    ],
)


@needs_kernel_tls
@SUITES
@on_reactor
async def test_the_kernel_sends_slices_from_their_files(
    tmp_path: Path, version: ssl.TLSVersion, suites: str
) -> None:
    data = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = NeverRead(str(path))
    counted = FromKernel()
    handler = _sending(b"begin", FileSlice(file, 7, 2_900_000), b"mid", FileSlice(file, 0, 10), b"end")
    expected = b"begin" + data[7:2_900_007] + b"mid" + data[:10] + b"end"
    expected = SIZE.pack(len(expected)) + expected
    made = identity(tmp_path, **({"ssl_cipher_suites": suites} if suites else {}))
    with serving(made, handler) as server, await connected(server, _of_version(version)) as peer:
        for _ in range(3):
            await peer.send(framed(b"x"))
            assert await peer.receive(len(expected)) == expected
        assert server.handshakes.succeeded_kernel == 1
        assert server.connections[0].buffered_bytes == 0
    assert counted.count >= 1
    file.close()


@needs_kernel_tls
@VERSIONS
@on_reactor
async def test_a_peer_that_reads_slowly_gets_everything_from_the_kernel(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    data = os.urandom(4_000_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = NeverRead(str(path))
    parts: list[Part] = []
    for begin in range(0, len(data), 50_000):
        parts += [b"%08d" % begin, FileSlice(file, begin, 50_000)]
    expected = b"".join(
        b"%08d" % begin + data[begin : begin + 50_000] for begin in range(0, len(data), 50_000)
    )
    with (
        serving(identity(tmp_path), _sending(*parts)) as server,
        await connected(server, _of_version(version), receive_bytes=4096) as peer,
    ):
        await peer.send(framed(b"x", b"y"))
        wanted = framed(expected, expected)
        assert await peer.receive(len(wanted)) == wanted
        assert server.handshakes.succeeded_kernel == 1
    file.close()


@needs_kernel_tls
@on_reactor
async def test_a_peer_that_goes_away_in_a_slice_leaves_nothing(tmp_path: Path) -> None:
    file = NeverRead(str(tmp_path / "segment"), create=True)
    os.truncate(file.path, 50_000_000)
    with serving(identity(tmp_path), _sending(FileSlice(file, 0, 50_000_000))) as server:
        peer = await connected(server, receive_bytes=4096)
        await peer.send(framed(b"x"))
        await peer.receive(100_000)
        peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.stream.close()
        await until(lambda: server.connections[0].is_closed)
    file.close()


class Interactive:
    """The program `openssl s_client`. A piece of its input that begins with k or K is a command: replace the
    own keys; with K, ask the peer to replace its keys too. What begins otherwise is sent."""

    def __init__(self, server: Server, directory: Path) -> None:
        command = f"openssl s_client -tls1_3 -connect {server.address.host}:{server.address.port} -CAfile"
        self.output = open(directory / "output", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command.split(), AUTHORITY.write(directory / "ca.pem")],
            stdin=subprocess.PIPE,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def say(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # The program ends when the server closes.
            self._process.stdin.write(data)
            self._process.stdin.flush()

    @property
    def heard(self) -> bytes:
        return Path(self.output.name).read_bytes()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self.output.close()


@contextlib.contextmanager
def interactive(server: Server, directory: Path) -> Iterator[Interactive]:
    client = Interactive(server, directory)
    try:
        yield client
    finally:
        client.close()


@on_reactor
async def test_openssl_replaces_its_keys_if_a_client_asks(tmp_path: Path) -> None:
    made = identity(tmp_path, ssl_kernel_tls="never")
    with serving(made) as server, interactive(server, tmp_path) as client:
        client.say(framed(b"number one"))
        await until(lambda: b"number one" in client.heard)
        for number in range(3):
            client.say(b"K\n")
            await until(lambda count=number + 1: client.heard.count(b"KEYUPDATE") == count)
            client.say(framed(b"after keys %d" % number))
            await until(lambda wanted=b"after keys %d" % number: wanted in client.heard)


TAKES_NO_NEW_KEYS = ssl.OPENSSL_VERSION_INFO >= (3, 2)
"""Whether OpenSSL has the system decrypt, too, with TLS 1.3: then it can follow no KeyUpdate at all."""


@needs_kernel_tls
@on_reactor
async def test_new_keys_of_the_client_alone_change_nothing_for_the_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is received is OpenSSL's. With a newer OpenSSL it is the kernel's, and the connection ends."""
    with serving(identity(tmp_path)) as server, interactive(server, tmp_path) as client:
        client.say(framed(b"number one"))
        await until(lambda: b"number one" in client.heard)
        client.say(b"k\n")
        await until(lambda: b"KEYUPDATE" in client.heard)
        client.say(framed(b"number two"))
        if TAKES_NO_NEW_KEYS:
            await until(lambda: server.connections[0].is_closed and client.has_ended)
            assert "new keys (KeyUpdate)" in caplog.text and "ssl.kernel.tls=never" in caplog.text
        else:
            await until(lambda: b"number two" in client.heard)
        assert server.handshakes.succeeded_kernel == 1


@needs_kernel_tls
@on_reactor
async def test_a_client_that_asks_for_new_keys_is_closed_before_it_gets_what_it_cannot_decrypt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with serving(identity(tmp_path)) as server, interactive(server, tmp_path) as client:
        client.say(framed(b"number one"))
        await until(lambda: b"number one" in client.heard)
        client.say(b"K\n")
        await until(lambda: b"KEYUPDATE" in client.heard)
        client.say(framed(b"number two"))
        await until(lambda: server.connections[0].is_closed and client.has_ended)
        assert server.handshakes.succeeded_kernel == 1
        assert b"number two" not in client.heard
        assert b"bad record mac" not in client.heard.lower()
    assert "new keys (KeyUpdate)" in caplog.text
