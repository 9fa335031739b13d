"""Frames over TLS on real loopback sockets: handshakes, certificates, large frames, slices, hostile peers."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import ssl
import threading
from pathlib import Path

import pytest

from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.outbound import BrokerChannel, ChannelLost, ChannelSettings
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.tls.handshakes import Handshakes
from holdfast_log.broker.network.tls.identity import TlsIdentity
from holdfast_log.broker.network.tls.network import TlsNetwork
from holdfast_log.broker.network.tls.settings import HandshakeLimits
from holdfast_log.broker.network.tls.stream import TlsStream
from holdfast_log.broker.network.tls.wire import TlsSocket
from holdfast_log.protocol.frames import SIZE, FileSlice
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.network.served import LIMITS, echo, framed
from tests.broker.network.tls.peers import (
    AUTHORITY,
    PATIENT,
    STRANGER,
    Server,
    client_context,
    connected,
    first_message,
    identity,
    is_closed,
    plain,
    serving,
)
from tests.certificates import BOTH_NAMES, Authority
from tests.reactor import in_thread, on_reactor, reactor, until

# Frames


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_reactor
async def test_requests_are_answered_in_either_version(tmp_path: Path, version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    with serving(identity(tmp_path)) as server, await connected(server, context) as peer:
        await peer.send(framed(b"", b"a", b"bcd"))
        assert await peer.receive(len(framed(b"", b"a", b"bcd"))) == framed(b"", b"a", b"bcd")
        assert peer.stream.version() == version.name.replace("_", ".").replace("TLSv1.", "TLSv1.")


@on_reactor
async def test_a_frame_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    with serving(identity(tmp_path)) as server, await connected(server) as peer:
        for each in framed(b"abc", b"d"):
            await peer.send(bytes((each,)))
        assert await peer.receive(len(framed(b"abc", b"d"))) == framed(b"abc", b"d")


@pytest.mark.parametrize("size", [16_384, 32_768, 300_000, 5_000_000])
@on_reactor
async def test_large_frames_come_whole(tmp_path: Path, size: int) -> None:
    body = os.urandom(size)
    with serving(identity(tmp_path)) as server, await connected(server) as peer:
        reads = threading.Event()
        reads.set()
        sent = framed(body, b"after", body)
        assert await peer.converse(sent, len(sent), reads) == sent


@on_reactor
async def test_slices_of_files_are_sent_between_memory(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    file = OsFile(str(path))

    def sliced(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        size = 5 + 2_900_000 + 3 + 10
        reply.send([SIZE.pack(size), b"begin", FileSlice(file, 7, 2_900_000), b"mid", FileSlice(file, 0, 10)])

    expected = SIZE.pack(5 + 2_900_000 + 13) + b"begin" + data[7:2_900_007] + b"mid" + data[:10]
    with serving(identity(tmp_path), sliced) as server, await connected(server) as peer:
        await peer.send(framed(b"x"))
        assert await peer.receive(len(expected)) == expected
        assert server.connections[0].buffered_bytes == 0
    file.close()


@on_reactor
async def test_a_slice_of_a_file_that_was_cut_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    file = OsFile(str(path))

    def sliced(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([SIZE.pack(100), FileSlice(file, 0, 100)])

    with serving(identity(tmp_path), sliced) as server, await connected(server) as peer:
        await peer.send(framed(b"x"))
        assert await is_closed(peer.stream)
    file.close()


@on_reactor
async def test_a_peer_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    body = bytes(100_000)
    count = 200
    with (
        serving(identity(tmp_path)) as server,
        await connected(server, receive_bytes=4096) as peer,
    ):
        reads = threading.Event()
        sent = framed(*[body] * count)
        received = peer.converse(sent, len(sent), reads)
        await until(lambda: server.connections[0].is_paused)
        assert server.connections[0].buffered_bytes < 3 * LIMITS.buffered_bytes_max
        reads.set()
        assert await received == sent


@on_reactor
async def test_frames_behind_a_pause_are_read_although_the_system_has_no_more_of_them(
    tmp_path: Path,
) -> None:
    """OpenSSL has decrypted the rest of a record already: nothing wakes the reactor for it."""
    held: list[ReplySlot] = []

    def holding(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        if not held:
            connection.mute(60_000)
        held.append(reply)
        reply.send([SIZE.pack(len(frame)), bytes(frame)])

    large = bytes(40_000)
    with serving(identity(tmp_path), holding) as server, await connected(server) as peer:
        await peer.send(framed(large, *[b"small"] * 1000))
        await until(lambda: bool(held))
        server.connections[0].unmute()
        everything = framed(large, *[b"small"] * 1000)
        assert await peer.receive(len(everything)) == everything


@on_reactor
async def test_the_end_of_the_stream_ends_the_connection(tmp_path: Path) -> None:
    with serving(identity(tmp_path)) as server:
        with await connected(server) as peer:
            await peer.send(framed(b"a"))
            await peer.receive(5)
            await in_thread(peer.stream.close)
        await until(lambda: server.connections[0].is_closed)


@on_reactor
async def test_the_end_is_said_in_tls(tmp_path: Path) -> None:
    context = client_context()
    with serving(identity(tmp_path)) as server, await connected(server, context) as peer:
        peer.stream.suppress_ragged_eofs = False
        await peer.send(framed(b"a"))
        assert await peer.receive(5) == framed(b"a")
        server.connections[0].close_when_sent("enough")
        assert await in_thread(peer.stream.recv, 1) == b""


# Certificates


@on_reactor
async def test_the_certificate_is_the_principal(tmp_path: Path) -> None:
    ann = AUTHORITY.issue("Ann").write(tmp_path / "ann.pem")
    with (
        serving(identity(tmp_path, ssl_client_auth="required")) as server,
        await connected(server, client_context(ann)) as peer,
    ):
        await peer.send(framed(b"a"))
        assert await peer.receive(5) == framed(b"a")
        assert server.connections[0].principal == "User:CN=Ann,O=Holdfast tests,C=DE"


@on_reactor
async def test_rules_make_the_principal(tmp_path: Path) -> None:
    ann = AUTHORITY.issue("Ann").write(tmp_path / "ann.pem")
    rules = "RULE:^CN=([^,]+),.*$/$1/L"
    made = identity(tmp_path, ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    with serving(made) as server, await connected(server, client_context(ann)) as peer:
        await peer.send(framed(b"a"))
        assert await peer.receive(5) == framed(b"a")
        assert server.connections[0].principal == "User:ann"


@pytest.mark.parametrize("asks", ["none", "requested"])
@on_reactor
async def test_without_a_certificate_a_client_is_anonymous(tmp_path: Path, asks: str) -> None:
    with (
        serving(identity(tmp_path, ssl_client_auth=asks)) as server,
        await connected(server) as peer,
    ):
        await peer.send(framed(b"a"))
        assert await peer.receive(5) == framed(b"a")
        assert server.connections[0].principal == "User:ANONYMOUS"


async def _refused_certificate(tmp_path: Path, certificate: str | None, asks: str, **more: str) -> Server:
    """Connect with this certificate, and wait until the server has refused it."""
    with serving(identity(tmp_path, ssl_client_auth=asks, **more)) as server:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            peer = await connected(server, client_context(certificate))
            with peer:
                # In TLS 1.3 a client learns of the refusal when it reads.
                assert await is_closed(peer.stream)
        await until(lambda: server.connections[0].is_closed)
        assert server.connections[0].requests == 0
    return server


@on_reactor
async def test_a_client_without_the_required_certificate_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await _refused_certificate(tmp_path, None, "required")
    assert "showed no certificate, which ssl.client.auth=required demands" in caplog.text


@pytest.mark.parametrize("asks", ["requested", "required"])
@on_reactor
async def test_a_certificate_of_an_unknown_authority_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, asks: str
) -> None:
    certificate = STRANGER.issue("Ann").write(tmp_path / "ann.pem")
    await _refused_certificate(tmp_path, certificate, asks)
    assert "the peer's certificate is not accepted" in caplog.text


@on_reactor
async def test_an_expired_certificate_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expired = AUTHORITY.issue("Ann", days_left=-1, days_old=5).write(tmp_path / "ann.pem")
    await _refused_certificate(tmp_path, expired, "required")
    assert "certificate has expired" in caplog.text


@on_reactor
async def test_a_certificate_that_no_rule_fits_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ann = AUTHORITY.issue("Ann").write(tmp_path / "ann.pem")
    rules = "RULE:^CN=Bob,.*$/bob/"
    await _refused_certificate(tmp_path, ann, "required", ssl_principal_mapping_rules=rules)
    assert "no rule of ssl.principal.mapping.rules fits" in caplog.text


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@on_reactor
async def test_tls_1_1_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving(identity(tmp_path)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connected(server, context)
        await until(lambda: server.connections[0].is_closed)
    assert "it speaks no version of TLS that ssl.enabled.protocols has" in caplog.text


@on_reactor
async def test_a_version_that_is_not_enabled_is_refused(tmp_path: Path) -> None:
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    made = identity(tmp_path, ssl_enabled_protocols="TLSv1.3")
    with serving(made) as server, pytest.raises((ssl.SSLError, ConnectionError)):
        await connected(server, context)


@on_reactor
async def test_only_the_given_suites_are_used(tmp_path: Path) -> None:
    made = identity(tmp_path, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    with serving(made) as server, await connected(server) as peer:
        used = peer.stream.cipher()
        assert used is not None and used[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        assert peer.stream.version() == "TLSv1.2"


# Hostile peers


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\0\0\0\x15" + bytes(21), id="PLAINTEXT"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        # The header of a handshake of 400 bytes: with another length the broker would wait for more.
        pytest.param(b"\x16\x03\x01\x01\x90" + random.Random(1).randbytes(400), id="no handshake"),
    ],
)
@on_reactor
async def test_bytes_that_are_no_tls_end_the_connection_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with caplog.at_level(logging.INFO), serving(identity(tmp_path)) as server, plain(server) as peer:
        await in_thread(peer.sendall, sent)
        assert await is_closed(peer)
        await until(lambda: server.connections[0].is_closed)
    lines = [record for record in caplog.records if "Closing the connection to" in record.getMessage()]
    assert len(lines) == 1


@on_reactor
async def test_bytes_that_are_no_tls_after_the_handshake_end_the_connection_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(identity(tmp_path)) as server, await connected(server) as peer:
        await peer.send(framed(b"a"))
        await peer.receive(5)
        with socket.socket(fileno=os.dup(peer.stream.fileno())) as below:
            await in_thread(below.sendall, b"\x17\x03\x03\0\x40" + bytes(64))
            await until(lambda: server.connections[0].is_closed)
    assert caplog.text.count("what it sent cannot be read") == 1


@pytest.mark.parametrize("size", [0, 5, 100, None])
@on_reactor
async def test_a_slow_handshake_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int | None
) -> None:
    limits = HandshakeLimits(timeout_ms=200)
    with serving(identity(tmp_path), echo, limits) as server, plain(server) as peer:
        await in_thread(peer.sendall, first_message()[:size])
        assert await is_closed(peer)
        assert server.handshakes.ended == 1
        await until(lambda: len(server.handshakes) == 0)
    assert "ssl.handshake.timeout.ms" in caplog.text


@on_reactor
async def test_the_oldest_handshake_gives_way_to_a_new_one(tmp_path: Path) -> None:
    limits = HandshakeLimits(timeout_ms=600_000, open_max=2)
    with serving(identity(tmp_path), echo, limits) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(plain(server)) for _ in range(2)]
        for number, each in enumerate(idle, 1):
            await in_thread(each.sendall, first_message())
            await until(lambda number=number: len(server.handshakes) == number)
        with await connected(server) as peer:
            await until(lambda: server.connections[0].is_closed)
            await peer.send(framed(b"a"))
            assert await peer.receive(5) == framed(b"a")
        assert not server.connections[1].is_closed


@on_reactor
async def test_those_whose_first_message_is_not_whole_displace_nobody(tmp_path: Path) -> None:
    limits = HandshakeLimits(timeout_ms=600_000, open_max=1)
    with serving(identity(tmp_path), echo, limits) as server, contextlib.ExitStack() as stack:
        with await connected(server) as peer:
            for _ in range(5):
                slow = stack.enter_context(plain(server))
                await in_thread(slow.sendall, first_message()[:100])
            await until(lambda: len(server.connections) == 6)
            await peer.send(framed(b"a"))
            assert await peer.receive(5) == framed(b"a")
        assert not any(connection.is_closed for connection in server.connections[1:])
        assert len(server.handshakes) == 0


class Counted:
    """How often TLS sockets do something for their handshakes: steps of any kind, those of OpenSSL, and looks
    at first messages that the system has reported too soon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.handshakes = self.looks = 0
        shake, look, do_handshake = TlsSocket.shake, TlsSocket._look_again, TlsStream.do_handshake

        def stepped(connection: TlsSocket) -> None:
            self.steps += 1
            shake(connection)

        def looked(connection: TlsSocket) -> None:
            self.looks += 1
            look(connection)

        def shaken(stream: TlsStream, block: bool = False) -> None:
            self.handshakes += 1
            do_handshake(stream, block)

        monkeypatch.setattr(TlsSocket, "shake", stepped)
        monkeypatch.setattr(TlsSocket, "_look_again", looked)
        monkeypatch.setattr(TlsStream, "do_handshake", shaken)


@on_reactor
async def test_a_first_message_that_comes_byte_by_byte_costs_a_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    *most, last = first_message()
    with serving(identity(tmp_path)) as server, plain(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in most:
            await in_thread(peer.sendall, bytes((each,)))
        assert len(server.handshakes) == counted.handshakes == 0, (
            "OpenSSL has nothing to do before it is whole"
        )
        await in_thread(peer.sendall, bytes((last,)))
        assert await in_thread(peer.recv, 1) == b"\x16", "the server's first message"
        assert len(server.handshakes) == counted.handshakes == 1
    # The first byte, the header, the whole of it; the system may wake this side twice for some of them. Where
    # the bytes fill the socket's buffer, a look every 0.1 s (Linux 6.1, from 342 bytes on).
    assert 1 <= counted.steps - counted.looks <= 6


@on_reactor
async def test_a_first_message_that_the_system_reports_again_and_again_is_looked_at_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does Linux when single bytes have filled the socket's buffer, however few they are."""
    counted = Counted(monkeypatch)
    # Another option is set, to no effect, so that the system reports whatever there is.
    monkeypatch.setattr(socket, "SO_RCVLOWAT", socket.SO_KEEPALIVE)
    *most, last = first_message()
    with serving(identity(tmp_path)) as server, plain(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in most:
            await in_thread(peer.sendall, bytes((each,)))
        await until(lambda: counted.looks >= 3 or counted.handshakes > 0 or counted.steps > 100)
        assert len(server.handshakes) == counted.handshakes == 0
        await in_thread(peer.sendall, bytes((last,)))
        assert await in_thread(peer.recv, 1) == b"\x16", "the server's first message"
    assert 1 <= counted.steps - counted.looks <= 6


@pytest.mark.parametrize("size", [3, 5, 100])
@on_reactor
async def test_a_first_message_that_ends_too_soon_ends_the_connection(tmp_path: Path, size: int) -> None:
    with serving(identity(tmp_path)) as server, plain(server) as peer:
        await in_thread(peer.sendall, first_message()[:size])
        await in_thread(peer.shutdown, socket.SHUT_WR)
        assert await is_closed(peer)
        await until(lambda: server.connections[0].is_closed)


@on_reactor
async def test_a_connection_that_closes_without_a_word_is_forgotten(tmp_path: Path) -> None:
    with serving(identity(tmp_path)) as server:
        with plain(server):
            await until(lambda: len(server.connections) == 1)
        await until(lambda: server.connections[0].is_closed)


@on_reactor
async def test_a_connection_may_close_during_its_handshake(tmp_path: Path) -> None:
    with serving(identity(tmp_path)) as server, plain(server) as peer:
        await in_thread(peer.sendall, first_message())
        await until(lambda: len(server.handshakes) == 1)
        server.connections[0].close("enough")
        assert await is_closed(peer)
        await until(lambda: len(server.handshakes) == 0)


# The side that connects


def channel(server: Server, host: str, made: TlsIdentity) -> BrokerChannel:
    network = TlsNetwork(
        TcpNetwork(reactor),
        made,
        Handshakes(reactor, PATIENT),
        Handshakes(reactor, PATIENT),
    )
    address = Address(host, server.address.port)
    return BrokerChannel(address, network, reactor, lambda: 0.5, ChannelSettings("broker-2"))


@on_reactor
async def test_a_broker_connects_with_its_certificate(tmp_path: Path) -> None:
    made = identity(tmp_path, ssl_client_auth="required")
    principals = []

    def refusing(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        principals.append(connection.principal)
        connection.close("the test is over")

    with serving(made, refusing) as server:
        sender = channel(server, "127.0.0.1", made)
        with pytest.raises(ChannelLost):
            await sender.send(ApiVersionsRequest())
        sender.close()
    assert principals == ["User:CN=broker,O=Holdfast tests,C=DE"]


@pytest.mark.parametrize(
    ("names", "authority", "reason"),
    [
        (("elsewhere",), AUTHORITY, "certificate is not valid for '127.0.0.1'|IP address mismatch"),
        (BOTH_NAMES, STRANGER, "unable to get local issuer|self-signed certificate in"),
    ],
)
@on_reactor
async def test_a_broker_refuses_a_certificate_of_another_name_or_authority(
    tmp_path: Path, names: tuple[str, ...], authority: Authority, reason: str
) -> None:
    other = authority.issue("broker", names).write(tmp_path / "other.pem")
    made = identity(tmp_path)
    with serving(identity(tmp_path, ssl_keystore_location=other)) as server:
        sender = channel(server, "127.0.0.1", made)
        with pytest.raises(ChannelLost, match=reason):
            await sender.send(ApiVersionsRequest())
        sender.close()
        assert server.connections[0].requests == 0


@on_reactor
async def test_a_broker_may_be_told_not_to_verify_names(tmp_path: Path) -> None:
    other = AUTHORITY.issue("broker", ("elsewhere",)).write(tmp_path / "other.pem")
    made = identity(tmp_path, ssl_endpoint_identification_algorithm="")

    def closing(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        connection.close("the test is over")

    with serving(identity(tmp_path, ssl_keystore_location=other), closing) as server:
        sender = channel(server, "127.0.0.1", made)
        with pytest.raises(ChannelLost):
            await sender.send(ApiVersionsRequest())
        sender.close()
        assert server.connections[0].requests == 1
