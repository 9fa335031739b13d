"""The Python source of one encoder or decoder while it is written: lines, blocks, names and constants.

`generated_encoders.py` and `generated_decoders.py` write one function for each message and version, when it
is first used. It has the whole message inlined, nested structs and loops included. Adjacent fields of fixed
width, and the length that follows them, are packed or unpacked by one `struct.Struct`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast_log.protocol.fields import SchemaError, Struct, Variable, WireType

NULL_STRUCT, PRESENT_STRUCT = -1, 1
"""The byte before a struct that may be null (KIP-893)."""


class GeneratedSource:
    """Lines of a generated function, and the constants that they use."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._globals: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: object) -> str:
        """The name of `value` in the generated function."""
        for name, known in self._globals.items():
            if known is value:
                return name
        name = self.name(prefix)
        self._globals[name] = value
        return name

    def literal(self, value: object) -> str:
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        return self.constant("default", value)

    def compile(self, function: str, filename: str) -> Any:
        exec(compile("\n".join(self._lines), filename, "exec"), self._globals)
        return self._globals[function]


def require_flexible(type_: Struct, flexible: bool) -> None:
    """Raise SchemaError for a struct that may be null in a version that is not flexible."""
    if not flexible:
        raise SchemaError(f"{type_.cls.__qualname__} may be null in a version that is not flexible")


def length_code(type_: WireType) -> str:
    """The `struct` code of the length before a value, in versions that are not flexible."""
    return "h" if type_ is Variable.STRING else "i"
