"""The protocol on one connection to a broker, without the connection itself.

Takes requests and gives the bytes to send; takes received bytes and gives responses.

A conversation begins with ApiVersions, which fixes the version of every later request, and with the steps of
an authenticator if there is one. After that, requests may be sent without waiting for responses, which come
back in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from holdfast_log.clients.connection.answers import check_answer
from holdfast_log.clients.connection.response_limits import ELEMENTS_MAX, largest_answer
from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.protocol.api import Api, Request, Response
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.frames import SIZE, FileSlice
from holdfast_log.protocol.headers import decode_correlation_id, decode_response, encode_request
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast_log.protocol.schema import MalformedMessage
from holdfast_log.protocol.wire import Buffer

Exchange: TypeAlias = Generator[Request[Any], Response, "int | None"]
"""Yields requests and is sent their responses; returns when it is satisfied, raises when it is not. An
authenticator may return the time in ms after which the broker wants another authentication (KIP-368)."""
Authenticator: TypeAlias = Callable[[], Exchange]

CLIENT_SOFTWARE_NAME = "holdfast"
CLIENT_SOFTWARE_VERSION = "0.1.0"
_API_VERSIONS_VERSION = 3
_TRANSACTION_VERSION, _WITH_NEW_EPOCHS = "transaction.version", 2
_SCRATCH_BYTES = 64 * 1024
_FIRST_LARGE_BYTES = 1024 * 1024
_MIN_FRAME_BYTES = 4
_HEAD_BYTES = 64


class Received(NamedTuple):
    """The response to the request that was sent with `token`; None if the request expects none."""

    token: Any
    response: Response | None


class _Sent(NamedTuple):
    correlation_id: int
    request: Request[Any]
    version: int
    token: Any
    request_bytes: int


class Conversation:
    """The state of one conversation. Make a new one for every connection.

    `max_response_bytes` is `response.max.bytes`, from which `largest_answer` derives how large the response
    to each request may be.
    """

    def __init__(
        self, client_id: str, max_response_bytes: int, authenticator: Authenticator | None = None
    ) -> None:
        self.is_ready = False
        """Whether versions are known and authentication is done, so that requests may be sent."""
        self.versions: dict[int, tuple[int, int]] = {}
        """The range of versions that the broker speaks, by API key."""
        self.features: dict[str, int] = {}
        """The highest version of each feature that the broker announces."""
        self.has_transactions_2 = False
        """Whether the cluster has finalised transaction.version 2 (KIP-890): producers get a new epoch with
        the end of each transaction, and leaders and group coordinators add to transactions themselves."""
        self.is_renewing = False
        """Whether the client authenticates again: until that is done, no other request may be sent."""
        self._lifetime_ms = 0
        self._client_id = client_id
        self._authenticator = authenticator
        self._handshake: Exchange | None = None
        self._correlation_id = 0
        self._in_flight: deque[_Sent] = deque()
        self._outgoing: deque[Buffer] = deque()
        self._unanswered: deque[tuple[int, Any]] = deque()  # end in the stream of bytes, token
        self._bytes_queued = 0
        self._bytes_sent = 0
        self._max_response_bytes = max_response_bytes
        self._frames = FrameReader()

    # Requests to bytes --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the handshake: the connection is established."""
        self._handshake = self._introduce()
        self._ask_next(self._handshake, None)

    def renew(self) -> None:
        """Authenticate again, on the same connection. Answers to earlier requests come first."""
        assert self.is_ready and self._authenticator is not None
        self.is_renewing = True
        self._handshake = self._authenticator()
        self._ask_next(self._handshake, None)

    def take_lifetime_ms(self) -> int:
        """For how long the broker knows the client from now on, the first time that this is called after an
        authentication; otherwise 0, and 0 also means for ever."""
        lifetime_ms, self._lifetime_ms = self._lifetime_ms, 0
        return lifetime_ms

    def send(self, request: Request[Any], token: Any, *, expects_response: bool = True) -> None:
        """Queue a request. `token` comes back with its response.

        A request that expects none (acks=0) counts as answered once it has been sent. Raises
        UnsupportedRequestError if no version that the broker speaks has all fields that the request uses.
        """
        self._enqueue(request, self.version_for(request), token, expects_response)

    def check_feature(self, name: str | None) -> None:
        """Raises UnsupportedRequestError unless the broker announces a feature; None: no feature."""
        if name is not None and name not in self.features:
            raise UnsupportedRequestError(f"the broker does not support {name}")

    def version_for(self, request: Request[Any] | type[Request[Any]]) -> int:
        """The newest version that both sides speak. Raises UnsupportedRequestError."""
        api: Api = request.api
        theirs = self.versions.get(api.key)
        if theirs is None and api.feature in self.features:
            return api.sent.last
        if theirs is None:
            raise UnsupportedRequestError(f"the broker does not know {api.name}")
        last = api.sent.last if self.has_transactions_2 else api.last_without_transactions_2(api.sent.last)
        version = min(theirs[1], last)
        if version < max(theirs[0], api.sent.first):
            raise UnsupportedRequestError(
                f"the broker speaks {api.name} in versions {theirs[0]} to {theirs[1]}, "
                f"this client in {api.sent.first} to {last}"
            )
        return version

    def _enqueue(
        self, request: Request[Any], version: int, token: Any, expects_response: bool = True
    ) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(request, version, self._correlation_id, self._client_id)
        queued_before = self._bytes_queued
        for part in parts:
            buffer = part.read() if isinstance(part, FileSlice) else part
            self._outgoing.append(buffer)
            self._bytes_queued += len(buffer)
        if expects_response:
            request_bytes = self._bytes_queued - queued_before
            self._in_flight.append(_Sent(self._correlation_id, request, version, token, request_bytes))
        else:
            self._unanswered.append((self._bytes_queued, token))

    @property
    def outgoing(self) -> deque[Buffer]:
        """The bytes to send next, in order."""
        return self._outgoing

    def sent(self, count: int) -> list[Received]:
        """Record that `count` bytes of `outgoing` were sent; returns requests that count as answered now."""
        self._bytes_sent += count
        while count:
            first = self._outgoing[0]
            if count < len(first):
                self._outgoing[0] = memoryview(first)[count:]
                break
            count -= len(first)
            self._outgoing.popleft()
        done = []
        while self._unanswered and self._unanswered[0][0] <= self._bytes_sent:
            done.append(Received(self._unanswered.popleft()[1], None))
        return done

    # Bytes to responses -------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """The buffer to receive the next bytes into."""
        return self._frames.buffer()

    def opening(self) -> bytes:
        """The first bytes that were received, while no response was complete."""
        return self._frames.head()

    def received(self, count: int) -> list[Received]:
        """Record that `count` bytes are in the receive buffer. Returns the responses completed by them.

        Raises MalformedMessage for bytes that answer no request of this client, for a response that is larger
        than its request justifies and for one that answers another question, and BrokerError or
        UnsupportedRequestError if the broker declines the handshake. The caller then closes the connection.
        """
        answers = []
        for frame in self._frames.advance(count, self._check_size):
            sent = self._in_flight.popleft()
            correlation_id = decode_correlation_id(frame)
            if correlation_id != sent.correlation_id:
                raise MalformedMessage(
                    f"received a response to request {correlation_id} instead of {sent.correlation_id}"
                )
            response = self._decode(sent, frame)
            if sent.token is self:
                self._continue_handshake(response)
            else:
                answers.append(Received(sent.token, response))
        return answers

    def _check_size(self, index: int, size: int) -> None:
        """Whether the response to the request with this index among those in flight may have that size."""
        if index >= len(self._in_flight):
            raise MalformedMessage("received a response although no request waits for one")
        sent = self._in_flight[index]
        allowed = largest_answer(sent.request, sent.request_bytes, self._max_response_bytes)
        if size > allowed:
            raise MalformedMessage(
                f"the response to {sent.request.api.name} has {size} bytes, and at most {allowed} are "
                f"accepted for what was asked (response.max.bytes={self._max_response_bytes})"
            )

    def _decode(self, sent: _Sent, frame: memoryview) -> Response:
        if isinstance(sent.request, ApiVersionsRequest) and frame[4:6] == _UNSUPPORTED_VERSION:
            # The broker may answer in any version: only the error code is certain.
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        response: Response = decode_response(type(sent.request), sent.version, frame, ELEMENTS_MAX)
        try:
            check_answer(sent.request, response)
        except MalformedMessage as error:
            raise MalformedMessage(f"{sent.request.api.name}: {error}") from None
        return response

    # The handshake ------------------------------------------------------------------------------------

    def _ask_next(self, handshake: Exchange, response: Response | None) -> None:
        try:
            request = next(handshake) if response is None else handshake.send(response)
        except StopIteration as end:
            self._handshake = None
            self._lifetime_ms = end.value or 0
            self.is_ready = True
            self.is_renewing = False
            return
        self._enqueue(request, self._handshake_version(request), self)

    def _handshake_version(self, request: Request[Any]) -> int:
        if not isinstance(request, ApiVersionsRequest):
            return self.version_for(request)
        return 0 if request.client_software_name == "" else _API_VERSIONS_VERSION

    def _continue_handshake(self, response: Response) -> None:
        assert self._handshake is not None
        self._ask_next(self._handshake, response)

    def _introduce(self) -> Exchange:
        response = yield ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = yield ApiVersionsRequest()
            assert isinstance(response, ApiVersionsResponse)
        if response.error_code:
            raise error_for(response.error_code)
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = {row.name: row.max_version for row in response.supported_features}
        levels = {row.name: row.max_version_level for row in response.finalized_features}
        self.has_transactions_2 = levels.get(_TRANSACTION_VERSION, 0) >= _WITH_NEW_EPOCHS
        return None if self._authenticator is None else (yield from self._authenticator())


_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class FrameReader:
    """Cuts a stream of bytes into frames. A frame larger than the scratch buffer gets a buffer of its own,
    into which the rest is received directly. That buffer grows with the bytes received, at most to twice
    their number, or to the size of the largest frame that has come whole: a frame that is announced and not
    sent costs no more memory than one that was sent."""

    def __init__(self) -> None:
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_filled = 0
        self._large_size = 0
        self._largest_size = 0
        """Size of the largest frame that has come whole."""

    def buffer(self) -> memoryview:
        """The buffer to receive the next bytes into; never empty."""
        if self._large is None:
            return memoryview(self._scratch)[self._filled :]
        if self._large_filled == len(self._large):
            self._grow_large(self._large)
        return memoryview(self._large)[self._large_filled :]

    def _grow_large(self, before: bytearray) -> None:
        # A new buffer, because the old one cannot grow while a view of it is used.
        self._large = bytearray(min(self._large_size, 2 * len(before)))
        self._large[: len(before)] = before

    def head(self) -> bytes:
        """The first bytes received that belong to no complete frame."""
        return bytes(self._scratch[: min(self._filled, _HEAD_BYTES)])

    def advance(self, count: int, check: Callable[[int, int], object]) -> list[memoryview]:
        """Record that `count` bytes were received. Returns the frames completed by them, without their sizes.

        `check(index, size)` is called when the size of a frame is known, `index` counts from the first frame
        that is not complete; it raises for a frame that is not wanted. Raises MalformedMessage for a frame
        that is too small to have a header.
        """
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < self._large_size:
                return []
            self._largest_size = max(self._largest_size, self._large_size)
            frame, self._large = memoryview(self._large), None
            return [frame]
        self._filled += count
        frames: list[memoryview] = []
        start = 0
        while self._filled - start >= SIZE.size:
            (size,) = SIZE.unpack_from(self._scratch, start)
            if size < _MIN_FRAME_BYTES:
                raise MalformedMessage(f"a response of {size} bytes")
            check(len(frames), size)
            body = start + SIZE.size
            if body + size <= self._filled:
                frames.append(memoryview(bytes(self._scratch[body : body + size])))
                start = body + size
            elif SIZE.size + size > len(self._scratch):
                self._begin_large(size, body)
                start = self._filled
            else:
                break
        if start:
            left = self._filled - start
            self._scratch[:left] = self._scratch[start : self._filled]
            self._filled = left
        return frames

    def _begin_large(self, size: int, start: int) -> None:
        self._large_size = size
        self._large_filled = self._filled - start
        self._large = bytearray(
            min(size, max(_FIRST_LARGE_BYTES, 2 * self._large_filled, self._largest_size))
        )
        self._large[: self._large_filled] = self._scratch[start : self._filled]
