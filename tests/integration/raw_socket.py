"""A client that can misbehave: whole frames, halves of them and bytes of any kind on a plain socket."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType
from typing import Any, TypeVar

from protocol.api import Request, Response
from protocol.frames import SIZE, join_parts
from protocol.headers import decode_response, encode_request

R = TypeVar("R", bound=Response)

TIMEOUT_S = 60.0


class RawSocket:
    """One connection to the broker at `port`. Raises OSError, TimeoutError among them, as sockets do."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation_id = 0

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; a peer that has hung up already is no error."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(SIZE.pack(len(body)) + body)

    def next_frame(self) -> bytes | None:
        """The next response, its size left away; None where the broker hung up instead."""
        head = self._take(SIZE.size)
        if head is None:
            return None
        return self._take(*SIZE.unpack(head))

    def ask(self, request: Request[R], version: int | None = None) -> R | None:
        """The response, which must be of the request's version; None where the broker hung up instead."""
        version = request.api.max_version if version is None else version
        self._correlation_id += 1
        self.send(request_frame(request, version, self._correlation_id))
        frame = self.next_frame()
        if frame is None:
            return None
        assert frame[:4] == self._correlation_id.to_bytes(4)
        return decode_response(type(request), version, frame)

    def call(self, request: Request[R], version: int | None = None) -> R:
        """The response. Raises AssertionError where the broker closes the connection instead."""
        response = self.ask(request, version)
        assert response is not None, "the broker hung up"
        return response

    def send_request(self, request: Request[Any], version: int | None = None) -> None:
        """Send a request without waiting for its response."""
        version = request.api.max_version if version is None else version
        self._correlation_id += 1
        self.send(request_frame(request, version, self._correlation_id))

    def is_hung_up(self) -> bool:
        """Wait for the broker to close the connection, which it does without a further word."""
        return self.next_frame() is None

    def _take(self, count: int) -> bytes | None:
        while len(self._received) < count:
            try:
                chunk = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not chunk:
                return None
            self._received += chunk
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def request_frame(request: Request[Any], version: int, correlation_id: int = 0) -> bytes:
    """A request as it travels, its size included."""
    return join_parts(encode_request(request, version, correlation_id, "bad input"))
