"""The APIs: pairs of request and response, their keys and versions, and their headers.

    @request(key=3, versions="0-12", flexible="9+")
    class MetadataRequest(Request[MetadataResponse]):
        ...

declares an API. `APIS` has all APIs by key; every request and response class has its own as `.api`.
"""

from __future__ import annotations

import importlib
import pkgutil
import struct as packing
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform

from protocol import messages
from protocol.frames import SIZE, Parts, parts_size
from protocol.schema import (
    MalformedMessage,
    ProtocolMessage,
    Versions,
    decode_from,
    encode_parts,
    set_versions,
    struct,
)
from protocol.wire import DECODE_ERRORS, Buffer, skip_tagged_fields

API_VERSIONS_KEY = 18
_CONTROLLED_SHUTDOWN_KEY = 7


class Response(ProtocolMessage):
    """The answer to a request."""

    __slots__ = ()

    api: ClassVar[Api]


R = TypeVar("R", bound=Response)
Q = TypeVar("Q", bound="Request[Any]")


class Request(ProtocolMessage, Generic[R]):
    """A request to a broker, from a client or a broker. `R` is the class of the response."""

    __slots__ = ()

    api: ClassVar[Api]


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the protocol.

    `versions` can be encoded and decoded. `advertised` versions are in the ApiVersions response of a broker
    with a handler for the API; they may be more (old versions that are answered by an error) or fewer. An
    `internal` API is for brokers only, and never advertised. For an API of Holdfast's own, `feature` is
    what a broker announces that supports it.
    """

    key: int
    name: str
    request: type[Request[Any]]
    response: type[Response]
    versions: Versions
    flexible: Versions
    advertised: Versions
    internal: bool
    feature: str | None

    @property
    def min_version(self) -> int:
        return self.versions.first

    @property
    def max_version(self) -> int:
        return self.versions.last

    def has_flexible_request_header(self, version: int) -> bool:
        """Whether the request header has version 2, which ends with tagged fields."""
        return version in self.flexible

    def has_flexible_response_header(self, version: int) -> bool:
        """Whether the response header has version 1, which ends with tagged fields.

        ApiVersions always has version 0, since its reader does not know the broker's versions yet (KIP-511).
        """
        return version in self.flexible and self.key != API_VERSIONS_KEY


@dataclass_transform(kw_only_default=True)
def request(
    *,
    key: int,
    versions: str,
    flexible: str,
    advertised: str | None = None,
    internal: bool = False,
    feature: str | None = None,
) -> Callable[[type[Q]], type[Q]]:
    """Declares a request, and the API that it forms with its response."""

    def declare(cls: type[Q]) -> type[Q]:
        declared = struct(cls)
        response = _response_of(declared)
        for side in (declared, response):
            set_versions(side, versions, flexible)
        api = Api(
            key=key,
            name=cls.__name__.removesuffix("Request"),
            request=declared,
            response=response,
            versions=declared.versions,
            flexible=declared.flexible_versions,
            advertised=Versions.parse(advertised or versions),
            internal=internal,
            feature=feature,
        )
        declared.api = response.api = api
        return declared

    return declare


def _response_of(cls: type[Request[Any]]) -> type[Response]:
    """The response class `R` of a class declared as Request[R]."""
    (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
    (response,) = typing.get_args(base)
    return typing.cast("type[Response]", response)


class _Apis(Mapping[int, Api]):
    """Every API by its key, imported on first use, so that a client does not import APIs that it never
    sends."""

    def __init__(self) -> None:
        self._rows: dict[int, Api] = {}

    def _loaded(self) -> dict[int, Api]:
        if not self._rows:
            modules = [
                importlib.import_module(f"{messages.__name__}.{module.name}")
                for module in pkgutil.iter_modules(messages.__path__)
            ]
            apis = [api for module in modules for api in _apis_in(vars(module))]
            self._rows = {api.key: api for api in sorted(apis, key=lambda api: api.key)}
        return self._rows

    def __getitem__(self, key: int) -> Api:
        return self._loaded()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())


def _apis_in(namespace: Mapping[str, object]) -> list[Api]:
    return [
        value.api
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, Request) and value is not Request
    ]


APIS: Mapping[int, Api] = _Apis()


class RequestHeader(NamedTuple):
    """The header before every request. `api_key` and `api_version` are as sent, even if unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__

_REQUEST_HEADER = packing.Struct(">hhih")
_REQUEST_HEADER_V0 = packing.Struct(">hhi")
_CORRELATION_ID = packing.Struct(">i")
_NO_TAGGED_FIELDS = b"\x00"
_FLEXIBLE_RESPONSE_HEADER = packing.Struct(">ix")
"""The correlation id, and an empty list of tagged fields."""


def encode_request(
    message: Request[Any], version: int, correlation_id: int, client_id: str | None = None
) -> Parts:
    """The request as a frame: its size, its header (version 1, or 2 where flexible) and its body.

    Raises InvalidMessage and UnsupportedVersion.
    """
    api = message.api
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(name))
    if api.key == _CONTROLLED_SHUTDOWN_KEY and version == 0:
        header = _REQUEST_HEADER_V0.pack(api.key, version, correlation_id)
        name = b""
    tagged = _NO_TAGGED_FIELDS if api.has_flexible_request_header(version) else b""
    return with_size(encode_parts(message, version, header + name + tagged))


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (without its size), and the position of the body.

    The position is meaningful only if `APIS` has the key and the version; otherwise the body's form is
    unknown. Raises MalformedMessage.
    """
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(view)
        position = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(view):
                raise MalformedMessage(f"a client id of {length} bytes; only {len(view) - position} remain")
            client_id = str(view[position:end], "utf-8")
            position = end
        if (key, version) in _flexible_requests():
            position = skip_tagged_fields(view, position + 1, len(view), view[position])
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"request header: {error}") from error
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id)), position


@cache
def _flexible_requests() -> frozenset[tuple[int, int]]:
    """Keys and versions of the requests whose header has version 2."""
    return frozenset(
        (key, version)
        for key, api in APIS.items()
        for version in api.versions
        if api.has_flexible_request_header(version)
    )


@cache
def _flexible_responses() -> frozenset[tuple[int, int]]:
    """Keys and versions of the responses whose header has version 1."""
    return frozenset(
        (key, version)
        for key, api in APIS.items()
        for version in api.versions
        if api.has_flexible_response_header(version)
    )


def encode_response(message: Response, version: int, correlation_id: int) -> Parts:
    """The response as a frame: its size, its header and its body.

    Raises InvalidMessage and UnsupportedVersion.
    """
    is_flexible = (message.api.key, version) in _flexible_responses()
    pack = _FLEXIBLE_RESPONSE_HEADER.pack if is_flexible else _CORRELATION_ID.pack
    return with_size(encode_parts(message, version, pack(correlation_id)))


def decode_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response frame (without its size). Raises MalformedMessage."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    except packing.error as error:
        raise MalformedMessage(f"response header: {error}") from error
    return int(correlation_id)


def decode_response(request_class: type[Request[R]], version: int, frame: Buffer) -> R:
    """The response in a frame (without its size) to a request of this class and version.

    Raises MalformedMessage and UnsupportedVersion.
    """
    api = request_class.api
    position = _CORRELATION_ID.size
    view = frame if type(frame) is memoryview else memoryview(frame)
    if api.has_flexible_response_header(version):
        try:
            position = skip_tagged_fields(view, position + 1, len(view), view[position])
        except DECODE_ERRORS as error:
            raise MalformedMessage(f"response header: {error}") from error
    return typing.cast("R", decode_from(api.response, version, view, position)[0])


def with_size(parts: Parts) -> Parts:
    """The parts as a frame, with their size in front. The first part must be bytes. Changes `parts`."""
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = SIZE.pack(parts_size(parts)) + first
    return parts
