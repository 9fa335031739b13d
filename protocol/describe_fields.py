"""docs/wire-format.md: every field of the requests that are Holdfast's own, from their declarations.

python -m holdfast_log.protocol.describe_fields > docs/wire-format.md
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.protocol.api import Api
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.describe import FIRST_OWN_KEY
from holdfast_log.protocol.fields import (
    Array,
    Field,
    Fixed,
    Struct,
    Variable,
    Versions,
    WireType,
    fields_of,
)

_INTRODUCTION = """\
# The wire format of the extensions

The requests that Holdfast has beyond Kafka's, field by field, in the order in which they are on the wire,
and the fields that it adds to Kafka's requests. `python -m holdfast_log.protocol.describe_fields`
generates this page from the declarations in `protocol/messages/`.
[ownership-protocol.md](ownership-protocol.md) and [key-versions.md](key-versions.md) have the rules;
[protocol.md](protocol.md) lists all APIs.

Frames, headers and types are Kafka's, in the flexible form (KIP-482): lengths are unsigned varints of the
length plus one, 0 is null, and each struct ends with its tagged fields. A broker that knows an extension
announces its *feature* in ApiVersions from version 3 on, and lists none of these keys there: ask for the
feature.
"""
_ADDED = """\
## Fields added to Kafka's requests

Tagged fields, which a broker of Apache Kafka skips. A broker that acts on them announces it; ask first.

| Message | Struct | Field | Type | Tag | Versions | Default |
| --- | --- | --- | --- | ---: | --- | --- |
"""
FIRST_OWN_TAG = 10_000
"""Tags from here on are Holdfast's own."""


def wire_format_page() -> str:
    """The whole page, in Markdown."""
    own = [api for api in APIS.values() if api.key >= FIRST_OWN_KEY]
    added = [
        row
        for api in APIS.values()
        if api.key < FIRST_OWN_KEY and not api.internal
        for side in (api.request, api.response)
        for row in _added(side.__name__, side)
    ]
    sections = [_section(api) for api in own if not api.internal]
    return "\n".join([_INTRODUCTION, *sections, _ADDED + "".join(added)])


def _section(api: Api) -> str:
    first = max(api.flexible.first, api.min_version)
    feature = f" Feature: `{api.feature}`." if api.feature else ""
    versions = f"Version {_shown(api.versions)}, flexible from {first} on.{feature}"
    return (
        f"## {api.name} ({api.key})\n\n{versions}\n\n"
        f"{_table('Request', api.request)}\n{_table('Response', api.response)}"
    )


def _table(side: str, cls: type) -> str:
    rows = list(_rows(cls, ""))
    if not rows:
        return f"**{side}**: no fields.\n"
    head = f"**{side}**\n\n| Field | Type | Null | Tag | Default |\n| --- | --- | --- | ---: | --- |\n"
    return head + "".join(rows)


def _rows(cls: type, indent: str) -> Iterator[str]:
    """The fields of a struct, each followed by those of the struct that it holds."""
    for field in fields_of(cls):
        null = "may be" if field.may_be_null else ""
        tag = "" if field.tag is None else str(field.tag)
        yield f"| {indent}`{field.name}` | {_type(field.type)} | {null} | {tag} | {_default(field)} |\n"
        inner = _inner(field.type)
        if inner is not None:
            yield from _rows(inner, indent + "&nbsp;&nbsp;&nbsp;")


def _added(message: str, cls: type) -> Iterator[str]:
    for field in fields_of(cls):
        if field.tag is not None and field.tag >= FIRST_OWN_TAG:
            yield (
                f"| {message} | {cls.__name__} | `{field.name}` | {_type(field.type)} | {field.tag} | "
                f"{_shown(field.versions)} | {_default(field)} |\n"
            )
        inner = _inner(field.type)
        if inner is not None:
            yield from _added(message, inner)


def _inner(type_: WireType) -> type | None:
    """The struct that a value of the type consists of, if it does."""
    if isinstance(type_, Array):
        return _inner(type_.element)
    return type_.cls if isinstance(type_, Struct) else None


def _type(type_: WireType) -> str:
    match type_:
        case Fixed():
            return type_.name
        case Variable():
            return type_.value
        case Array():
            return f"array of {_type(type_.element)}"
        case Struct():
            return type_.cls.__name__


def _default(field: Field) -> str:
    """What a tagged field, or one that a version lacks, is taken to be."""
    if field.tag is None:
        return ""
    match field.default:
        case None:
            return "null"
        case () | "" | b"":
            return "empty"
        case bool():
            return str(field.default).lower()
        case _:
            return str(field.default)


def _shown(versions: Versions) -> str:
    last = min(versions.last, 99)
    if versions.first == last:
        return str(last)
    return f"{versions.first}+" if last == 99 else f"{versions.first}-{last}"


if __name__ == "__main__":
    print(wire_format_page(), end="")
