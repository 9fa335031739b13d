"""TLS: a channel with a handshake, and the context made from a client's settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast_log.clients.connection.network import SocketChannel
from holdfast_log.clients.errors import ConfigError
from holdfast_log.protocol.wire import Buffer


class TlsChannel(SocketChannel):
    """A TLS connection over TCP."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext,
        send_bytes: int,
        receive_bytes: int,
        on_close: Callable[[SocketChannel], None],
    ) -> None:
        super().__init__(host, port, send_bytes=send_bytes, receive_bytes=receive_bytes, on_close=on_close)
        self._host = host
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._is_shaken = False

    def finish_connecting(self) -> bool:
        if not self._is_shaken and super().finish_connecting():
            if self._tls is None:  # Not earlier: Python wraps only a connected socket.
                self.socket = self._tls = self._context.wrap_socket(
                    self.socket, server_hostname=self._host, do_handshake_on_connect=False
                )
            self.wants_write = False
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLWantWriteError:
                self.wants_write = True
                return False
            self._is_shaken = True
        return self._is_shaken

    def send(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self.socket.send(buffers[0])  # An SSLSocket has no sendmsg.
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def receive_into(self, buffer: memoryview) -> int | None:
        try:
            return self.socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def has_pending(self) -> bool:
        return self._tls is not None and self._is_shaken and self._tls.pending() > 0


def tls_channels(settings: Mapping[str, Any]) -> Callable[..., TlsChannel]:
    """A factory of channels for `security.protocol=SSL`. Raises ConfigError as `tls_context` does."""
    return partial(TlsChannel, context=tls_context(settings))


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """The context made from the settings `ssl.*`.

    Raises ConfigError if a file of certificates or keys cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=settings["ssl.truststore.location"])
        keystore = settings["ssl.keystore.location"]
        if keystore is not None:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(keystore, password=settings["ssl.key.password"] or "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"ssl.truststore.location or ssl.keystore.location: {error}") from None
    if settings["ssl.endpoint.identification.algorithm"] != "https":
        context.check_hostname = False
    return context
