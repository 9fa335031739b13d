"""Why a connection failed, in words and as a `ConnectionProblem`: what was seen, and what to do.

A wrong address shows itself in few ways: the name has no address, nobody listens, nobody answers, or somebody
answers who does not speak the protocol. What the first bytes look like tells TLS and web servers apart.
"""

from __future__ import annotations

import os
import socket

from holdfast_log.clients.errors import ConnectionFailedError, ConnectionProblem

_TLS_ALERT, _TLS_HANDSHAKE = 0x15, 0x16
_SHOWN_BYTES = 16

_KNOWN_OPENINGS = {b"HTTP/": "a web server (HTTP)", b"SSH-": "an SSH server", b"220 ": "a mail or FTP server"}


def cannot_connect(address: str, error: OSError, *, uses_tls: bool) -> ConnectionFailedError:
    """The error of a connection that could not be established, TLS handshake included."""
    kind = _ssl_kind(error)
    if kind == "SSLCertVerificationError":
        detail = getattr(error, "verify_message", "") or str(error)
        return _failed(
            address,
            f"certificate verify failed: {detail}",
            "set ssl.truststore.location to the authority that signed it, and connect by the name in it",
            ConnectionProblem.CERTIFICATE,
        )
    if kind or (uses_tls and isinstance(error, ConnectionResetError | BrokenPipeError)):
        return _failed(
            address,
            f"the TLS handshake failed: {error.strerror or error}",
            "if the broker does not speak TLS on this port, set security.protocol=PLAINTEXT",
            ConnectionProblem.TLS_FAILED,
        )
    if isinstance(error, socket.gaierror):
        host = address.rpartition(":")[0]
        return _failed(
            address,
            f"cannot connect: the name {host} cannot be resolved ({error.strerror or error})",
            "check the spelling in bootstrap.servers and the name service; if it is the address that a "
            "broker advertises, check that broker's advertised.listeners",
            ConnectionProblem.NAME_NOT_FOUND,
        )
    said = f"cannot connect: {os.strerror(error.errno) if error.errno else error}"
    if isinstance(error, ConnectionRefusedError):
        return _failed(
            address,
            said,
            "nothing listens at this address: check that the broker runs, and the host and port",
            ConnectionProblem.REFUSED,
        )
    return _failed(address, said, "check the host and the network", ConnectionProblem.UNREACHABLE)


def no_answer(address: str, waited_ms: int, *, is_connected: bool) -> ConnectionFailedError:
    """The error of a connection that was not ready in time."""
    if is_connected:
        return _failed(
            address,
            f"connected, but no answer to the first request after {waited_ms} ms",
            "check that this is the port of a Kafka broker, and whether it expects TLS "
            "(security.protocol=SSL)",
            ConnectionProblem.SILENT,
        )
    return _failed(
        address,
        f"no connection after {waited_ms} ms",
        "the host may be down, or a firewall may drop the packets: check the host and port",
        ConnectionProblem.UNREACHABLE,
    )


def lost(address: str, error: OSError, *, may_want_sasl: bool = False) -> ConnectionFailedError:
    """The error of a connection that broke after it had been ready. It `may_want_sasl` if the client used
    none, and the broker had answered nothing but the first request, which says who both are."""
    advice = (
        "; if that happens again, the broker may want SASL at this address: set security.protocol to "
        "SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism"
    )
    reason = f"{address}: connection lost: {error.strerror or error}"
    return ConnectionFailedError(f"{reason}{advice if may_want_sasl else ''}")


def not_understood(address: str, received: bytes, error: Exception) -> ConnectionFailedError:
    """The error of a connection that ended, or sent something else, before the first valid answer.

    `received` is what came so far.
    """
    if received[:1] in (bytes([_TLS_ALERT]), bytes([_TLS_HANDSHAKE])) and received[1:2] == b"\x03":
        return _failed(
            address,
            "the server speaks TLS on this port, and this client does not",
            "set security.protocol=SSL, and ssl.truststore.location if the authority is your own",
            ConnectionProblem.TLS_EXPECTED,
        )
    for opening, server in _KNOWN_OPENINGS.items():
        if received.startswith(opening):
            return _failed(
                address,
                f"{server} answered, not a Kafka broker",
                "check the port in bootstrap.servers",
                ConnectionProblem.NOT_KAFKA,
            )
    if received:
        return _failed(
            address,
            f"the answer is not Kafka's protocol: {error} (it begins with {received[:_SHOWN_BYTES]!r})",
            "check the port in bootstrap.servers",
            ConnectionProblem.NOT_KAFKA,
        )
    return _failed(
        address,
        f"the connection was closed before the first answer: {getattr(error, 'strerror', None) or error}",
        "the port may expect TLS (then set security.protocol=SSL) or SASL, or belong to another server than "
        "a Kafka broker; a broker that is stopping closes connections like this too",
        ConnectionProblem.CLOSED_EARLY,
    )


def _failed(address: str, said: str, advice: str, problem: ConnectionProblem) -> ConnectionFailedError:
    return ConnectionFailedError(f"{address}: {said}; {advice}", problem)


def _ssl_kind(error: OSError) -> str:
    """The name of an error of the module `ssl`, which is slow to import; empty for others."""
    names = [kind.__name__ for kind in type(error).__mro__]
    return names[0] if "SSLError" in names else ""
