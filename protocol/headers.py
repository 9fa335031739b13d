"""Requests and responses as frames: size, header, body."""

from __future__ import annotations

import struct as packing
import sys
import typing
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.frames import SIZE, Parts, parts_size
from holdfast_log.protocol.schema import MalformedMessage, decode_from, encode_parts
from holdfast_log.protocol.wire import DECODE_ERRORS, Buffer, skip_tagged_fields

R = TypeVar("R", bound=Response)
_CONTROLLED_SHUTDOWN_KEY = 7


class RequestHeader(NamedTuple):
    """The header before every request. `api_key` and `api_version` are as sent, even if unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__

_REQUEST_HEADER = packing.Struct(">hhih")
_REQUEST_FIELDS = packing.Struct(">iih")
_REQUEST_HEADER_V0 = packing.Struct(">hhi")
_CORRELATION_ID = packing.Struct(">i")
_NO_TAGGED_FIELDS = b"\x00"
_COPIED_BYTES = 32 * 1024
"""Up to so many bytes of a message are copied behind its size, which takes less than another part."""
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
    form, correlation_id, client_id, position = request_fields(frame)
    api_key, version = key_and_version(form)
    return _new_tuple(RequestHeader, (api_key, version, correlation_id, client_id)), position


RequestFields: TypeAlias = tuple[int, int, "str | None", int]
"""A request's form, its correlation id, its client id and the position of its body."""


def form_of(api_key: int, version: int) -> int:
    """An API key and a version as one number: the first four bytes of such requests."""
    return api_key << 16 | version & 0xFFFF


def key_and_version(form: int) -> tuple[int, int]:
    """What `form_of` made `form` of."""
    version = form & 0xFFFF
    return form >> 16, version - 0x10000 if version > 0x7FFF else version


def request_fields(frame: Buffer) -> RequestFields:
    """What `decode_request_header` returns, as plain numbers. Raises as it does."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        form, correlation_id, length = _REQUEST_FIELDS.unpack_from(view)
        position = _REQUEST_FIELDS.size
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(view):
                raise MalformedMessage(f"a client id of {length} bytes; only {len(view) - position} remain")
            client_id = str(view[position:end], "utf-8")
            position = end
        if form in flexible_requests():
            position = skip_tagged_fields(view, position + 1, len(view), view[position])
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"request header: {error}") from error
    return form, correlation_id, client_id, position


@cache
def flexible_requests() -> frozenset[int]:
    """The forms of the requests whose header has version 2."""
    return frozenset(
        form_of(key, version)
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


def decode_response(
    request_class: type[Request[R]], version: int, frame: Buffer, elements_max: int = sys.maxsize
) -> R:
    """The response in a frame (without its size) to a request of this class and version.

    Raises MalformedMessage, TooManyElements among them (see `decode_from`), and UnsupportedVersion.
    """
    api = request_class.api
    position = _CORRELATION_ID.size
    view = frame if type(frame) is memoryview else memoryview(frame)
    if api.has_flexible_response_header(version):
        try:
            position = skip_tagged_fields(view, position + 1, len(view), view[position])
        except DECODE_ERRORS as error:
            raise MalformedMessage(f"response header: {error}") from error
    return typing.cast("R", decode_from(api.response, version, view, position, elements_max)[0])


def with_size(parts: Parts) -> Parts:
    """The parts as a frame, with their size in front. The first part must be bytes. Changes `parts`."""
    first = parts[0]
    assert isinstance(first, bytes)
    size = SIZE.pack(parts_size(parts))
    if len(first) > _COPIED_BYTES:
        parts.insert(0, size)
    else:
        parts[0] = size + first
    return parts
