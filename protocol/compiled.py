"""What handles requests between the socket and their handlers, compiled, for the usual ones.

A compiled function returns None for whatever it does not know. Its caller then uses the Python code, which is
the reference: it handles every message, and raises the errors for all that are malformed. Without the
extensions, and where the environment variable HOLDFAST_PURE_PYTHON is set, `WIRE` is None and the tables are
empty.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeAlias
from uuid import UUID

from holdfast_log.protocol import fetch_codec
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.frames import FileSlice, Part
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE

COMPILED_ELEMENTS_MAX = 1000
"""Maximum number of elements, in all arrays together, of a request that a compiled decoder decodes. It is the
lowest value of `socket.request.max.elements`, so that compiled decoders need not know that setting."""

RequestDecoder: TypeAlias = Callable[[memoryview, int, int], "Request[Any] | None"]
"""Decodes the request at a position of a frame: called with the frame, the version, and the position of the
body. None: the generic decoder is to be used. That is so for everything malformed, and for requests with more
than `COMPILED_ELEMENTS_MAX` elements."""

ResponseEncoder: TypeAlias = "Callable[[Response, int, int], Sequence[Part] | None]"
"""Encodes a response as a frame with its size and header: called with the response, the version and the
correlation id. None: the generic encoder is to be used."""


RecordsEncoder: TypeAlias = (
    "Callable[[int, int, str, UUID, int, int, int, FileSlice | None], Sequence[Part] | None]"
)
"""Encodes the answer to a fetch of one partition that was read: called with the version, the correlation id
and the arguments of `protocol.fetch_codec.records_response`. None: that response is to be encoded."""


def extension(name: str, package: str = "protocol") -> ModuleType | None:
    """The extension `<package>.<name>`; None if it was not compiled, or if HOLDFAST_PURE_PYTHON is set."""
    if os.environ.get(PURE_PYTHON_VARIABLE):
        return None
    try:
        return importlib.import_module(f"holdfast_log.{package}.{name}")
    except ImportError:
        return None


WIRE = extension("_wire")
"""Frames received, headers of requests and parts sent: see `protocol._wire`."""

DECODERS: dict[int, RequestDecoder] = {}
"""By API key."""

ENCODERS: dict[int, ResponseEncoder] = {}
"""By API key."""

_PRODUCE_KEY = 0

_produce = extension("_produce_codec")
if _produce is not None:
    DECODERS[_PRODUCE_KEY] = _produce.decode
    ENCODERS[_PRODUCE_KEY] = _produce.encode

_fetch = extension("_fetch_codec")
if _fetch is not None:
    fetch_codec.bind(_fetch)
    DECODERS[fetch_codec.KEY] = _fetch.decode
    ENCODERS[fetch_codec.KEY] = _fetch.encode

ENCODE_RECORDS: RecordsEncoder | None = None if _fetch is None else _fetch.encode_records
"""Encodes what `protocol.fetch_codec.records_response` returns, without making it."""
