"""Values as Avro's binary encoding. Needs the package `fastavro` (the extra `schemas`)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro


class AvroSchema:
    """An Avro schema. Its methods are a producer's serializer and a consumer's deserializer.

    `written` is the schema of the records in the topic if it is an older or newer one: Avro resolves the two
    by its rules (fields by name, defaults for those that are missing). Raises what fastavro raises for what
    is not a schema.
    """

    def __init__(self, schema: Mapping[str, Any], written: Mapping[str, Any] | None = None) -> None:
        self._schema = fastavro.parse_schema(dict(schema))
        self._written = self._schema if written is None else fastavro.parse_schema(dict(written))

    @classmethod
    def from_file(cls, path: str | Path, written: str | Path | None = None) -> AvroSchema:
        """The schema in an .avsc file."""
        return cls(_read(path), None if written is None else _read(written))

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The value as bytes; None stays None. Raises what fastavro raises if the value does not fit."""
        if value is None:
            return None
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, value, strict=True)
        return out.getvalue()

    def deserialize(self, topic: str, data: bytes) -> Any:
        """The value. Raises ValueError if bytes remain, and what fastavro raises if they do not fit."""
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, self._written, self._schema)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes follow the Avro value in topic {topic}")
        return value


def _read(path: str | Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found
