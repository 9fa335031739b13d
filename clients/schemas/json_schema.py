"""Values as JSON that a JSON Schema describes. Needs the package `jsonschema` (the extra `schemas`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for


class JsonSchema:
    """A JSON Schema. Its methods are a producer's serializer and a consumer's deserializer.

    The schema's `$schema` says which draft it is; without one it is the newest that `jsonschema` knows.
    Raises jsonschema's SchemaError if it is not a valid schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        kind = validator_for(schema)
        kind.check_schema(schema)
        self._validator = kind(schema)

    @classmethod
    def from_file(cls, path: str | Path) -> JsonSchema:
        """The schema in a file."""
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The value as UTF-8; None stays None. Raises jsonschema's ValidationError if it does not fit."""
        if value is None:
            return None
        self._validator.validate(value)
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def deserialize(self, topic: str, data: bytes) -> Any:
        """The value. Raises ValueError if it is not JSON, jsonschema's ValidationError if it does not fit."""
        value = json.loads(data)
        self._validator.validate(value)
        return value
