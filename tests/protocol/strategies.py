"""Messages of any declared class and version, for hypothesis to fill: derived from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.fields import Array, Field, Fixed, Struct, Variable, WireType, fields_of
from holdfast_log.protocol.schema import ProtocolMessage

Override = Callable[[Field], "st.SearchStrategy[Any] | None"]
"""A strategy for the fields that a test cannot have filled at random."""

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXTS = st.text(max_size=12) | st.sampled_from(["x" * 126, "x" * 127, "é" * 8192])
_DATA = st.binary(max_size=12) | st.sampled_from([b"\x00" * 127, b"\xff" * 5000])


def every_version() -> list[tuple[type[ProtocolMessage], int]]:
    """Each request and each response of each API, in each of its versions."""
    return [
        (cls, version)
        for api in APIS.values()
        for cls in (api.request, api.response)
        for version in api.versions
    ]


def version_id(case: object) -> str:
    """How pytest is to name a class or a version."""
    return case.__name__ if isinstance(case, type) else f"v{case}"


def messages(cls: type[Any], version: int, override: Override = lambda field: None) -> st.SearchStrategy[Any]:
    """Messages that `version` can carry: fields that it does not have hold their defaults."""
    present = {
        field.name: _field(field, version, override) for field in fields_of(cls) if version in field.versions
    }
    absent = {field.name: _default(field) for field in fields_of(cls) if version not in field.versions}
    return st.builds(cls, **present, **absent)


def _field(field: Field, version: int, override: Override) -> st.SearchStrategy[Any]:
    special = override(field)
    values = _values(field.type, version, override) if special is None else special
    return st.none() | values if version in field.nullable else values


def _default(field: Field) -> st.SearchStrategy[Any]:
    match field.type, field.default:
        case Array(), ():
            return st.builds(list)
        case Struct(cls=cls), _:
            return st.builds(cls)
        case _:
            return st.just(field.default)


def _values(type_: WireType, version: int, override: Override) -> st.SearchStrategy[Any]:
    match type_:
        case Fixed():
            return _fixed(type_)
        case Variable.STRING:
            return _TEXTS
        case Variable():
            return _DATA
        case Array(element):
            return st.lists(_values(element, version, override), max_size=3)
        case Struct(cls):
            return messages(cls, version, override)


def _fixed(type_: Fixed) -> st.SearchStrategy[Any]:
    match type_.name:
        case "bool":
            return st.booleans()
        case "uuid":
            return st.uuids()
        case "float64":
            return st.floats(allow_nan=False)
        case _ if type_.code.isupper():
            return st.integers(0, 2 ** _BITS[type_.code.lower()] - 1)
        case _:
            bits = _BITS[type_.code]
            return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
