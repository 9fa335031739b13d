"""A client on a plain socket that can send whole frames, parts of frames and any other bytes."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, TypeVar

from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request

R = TypeVar("R", bound=Response)

TIMEOUT_S = 120.0
CLIENT_ID = "raw socket"


class RawSocket:
    """One connection to the broker at `port`, from the address `source`. Its methods raise OSError;
    TimeoutError after `timeout_s`."""

    def __init__(
        self,
        port: int,
        source: str = "127.0.0.1",
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation_id = 0

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes unchanged. No error is raised if the broker has already closed the connection."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(SIZE.pack(len(body)) + body)

    def next_frame(self) -> bytes | None:
        """The next response, without its size prefix; None if the broker closed the connection."""
        head = self._take(SIZE.size)
        if head is None:
            return None
        return self._take(*SIZE.unpack(head))

    def ask(self, request: Request[R], version: int | None = None) -> R | None:
        """Send a request. Returns its response; None if the broker closed the connection."""
        version = request.api.max_version if version is None else version
        self._correlation_id += 1
        self.send(request_frame(request, version, self._correlation_id, self._client_id))
        frame = self.next_frame()
        if frame is None:
            return None
        assert frame[:4] == self._correlation_id.to_bytes(4)
        return decode_response(type(request), version, frame)

    def call(self, request: Request[R], version: int | None = None) -> R:
        """Send a request. Returns its response. Raises AssertionError if the broker closed the connection."""
        response = self.ask(request, version)
        assert response is not None, "the broker closed the connection"
        return response

    def send_request(self, request: Request[Any], version: int | None = None) -> None:
        """Send a request without waiting for its response."""
        version = request.api.max_version if version is None else version
        self._correlation_id += 1
        self.send(request_frame(request, version, self._correlation_id, self._client_id))

    def is_hung_up(self) -> bool:
        """Wait until a frame arrives or the connection ends. Returns whether the broker closed it."""
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


def request_frame(
    request: Request[Any], version: int, correlation_id: int = 0, client_id: str = CLIENT_ID
) -> bytes:
    """A request encoded as a frame, with its size prefix."""
    return join_parts(encode_request(request, version, correlation_id, client_id))
