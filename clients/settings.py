"""Settings: one row each, and their checked values.

A row declares a setting's name, type, default, bounds and meaning. The checks, the error messages and the
table in docs/settings.md are derived from the rows.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_SIMILAR_SHARE = 0.7
"""Share of letters that two names have in common at least to be similar, as difflib counts it."""
_COMPARED_MAX = 5
"""Maximum number of names that are compared with a misspelt one letter by letter."""
_MISSPELT_MAX = 200
"""Maximum number of letters of a misspelt name for which a similar one is looked for."""


class SettingError(ValueError):
    """A setting has a value that is not allowed; the message names the key, the value and what is allowed."""


class InvalidValue(SettingError):
    """The value of one setting is not allowed."""

    def __init__(self, name: str, shown: str, allowed: str) -> None:
        super().__init__(f"{name}={shown} is not allowed: expected {allowed}")
        self.name = name
        self.shown = shown
        self.allowed = allowed


class HiddenText(str):
    """A value that was kept outside of the properties file, and so may be a secret: errors do not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(hidden)"


class SettingType(enum.Enum):
    """The type to which a setting's text is converted."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    PASSWORD = "password"


_INT_BOUNDS = {SettingType.INT: (-(2**31), 2**31 - 1), SettingType.LONG: (-(2**63), 2**63 - 1)}
_EXPECTED = {
    SettingType.STRING: "text",
    SettingType.BOOLEAN: "true or false",
    SettingType.INT: "a whole number",
    SettingType.LONG: "a whole number",
    SettingType.DOUBLE: "a number",
    SettingType.LIST: "a comma-separated list",
    SettingType.PASSWORD: "text",
}
REQUIRED = object()
"""Default of a setting that must be given."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row.

    `default` is the parsed value (None: unset). `minimum` and `maximum` bound numbers, both inclusive;
    `choices` lists the only values (of a list: the only members). For other constraints, `check` raises
    ValueError with a text that says what is allowed. `dynamic` settings can change while a broker runs.
    """

    name: str
    type: SettingType
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None
    dynamic: bool = False

    def allowed(self) -> str:
        """What is allowed, in words, for error messages and the generated table."""
        if self.choices:
            joined = ", ".join(self.choices)
            return f"any of {joined}" if self.type is SettingType.LIST else f"one of {joined}"
        expected = _EXPECTED[self.type]
        if self.minimum is not None and self.maximum is not None:
            return f"{expected} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"{expected}, at least {self.minimum}"
        if self.maximum is not None:
            return f"{expected}, at most {self.maximum}"
        return expected

    def parse(self, value: Any) -> Any:
        """The typed and checked form of `value`, which is text or already typed. Raises `SettingError`."""
        try:
            parsed = self._convert(value)
            self._check_bounds(parsed)
            if self.check is not None:
                self.check(parsed)
        except ValueError as error:
            is_hidden = self.type is SettingType.PASSWORD or isinstance(value, HiddenText)
            # A check's own words may repeat a part of the value.
            allowed = self.allowed() if is_hidden else str(error) or self.allowed()
            shown = "(hidden)" if is_hidden else repr(value)
            raise InvalidValue(self.name, shown, allowed) from None
        return parsed

    def _convert(self, value: Any) -> Any:
        if value is None:
            if self.default is not None:
                raise ValueError
            return None
        match self.type:
            case SettingType.BOOLEAN:
                return _as_boolean(value)
            case SettingType.INT | SettingType.LONG:
                return _as_int(value)
            case SettingType.DOUBLE:
                return _as_float(value)
            case SettingType.LIST:
                return tuple(item for item in map(_as_text, _as_items(value)) if item)
            case _:
                return _as_text(value)

    def _check_bounds(self, parsed: Any) -> None:
        if parsed is None:
            return
        if self.choices:
            members = parsed if self.type is SettingType.LIST else (parsed,)
            if any(member not in self.choices for member in members):
                raise ValueError
        if self.type in (SettingType.INT, SettingType.LONG, SettingType.DOUBLE):
            low, high = _INT_BOUNDS.get(self.type, (float("-inf"), float("inf")))
            low = low if self.minimum is None else self.minimum
            high = high if self.maximum is None else self.maximum
            if not low <= parsed <= high:
                raise ValueError(f"{_EXPECTED[self.type]} from {low} to {high}")


def _as_text(value: Any) -> str:
    if not isinstance(value, str | int | float | os.PathLike):
        raise ValueError
    return str(value).strip()


def _as_items(value: Any) -> Iterable[Any]:
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise ValueError
    return value


def _as_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    match str(value).strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError


def _as_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError from None


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError from None


class Settings(Mapping[str, Any]):
    """Checked values, one for each row, looked up by the setting's dotted name.

    `unknown` maps each unknown key to the most similar setting name (or None). The caller decides whether an
    unknown key is a warning or an error.

    Raises `SettingError` for a value that is not allowed and for a required setting that is missing.
    """

    def __init__(self, rows: Sequence[Setting], values: Mapping[str, Any]) -> None:
        self.rows = {row.name: row for row in rows}
        self.given = frozenset(values) & frozenset(self.rows)
        self.unknown: dict[str, str | None] = {
            key: closest_name(key, self.rows) for key in values if key not in self.rows
        }
        missing = [row.name for row in rows if row.default is REQUIRED and row.name not in values]
        if missing:
            row = self.rows[missing[0]]
            raise SettingError(f"{row.name} is missing and has no default: set it to {row.allowed()}")
        self._values = {
            row.name: row.parse(values[row.name]) if row.name in values else row.default for row in rows
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def with_values(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some values replaced. Raises `SettingError`."""
        given = {name: self._values[name] for name in self.given}
        return Settings(list(self.rows.values()), {**given, **values})


def closest_name(key: str, names: Mapping[str, Any]) -> str | None:
    """The name most similar to `key`; None if no name is similar enough.

    Clients send brokers thousands of unknown names in one request. So only the few names that share the most
    letters with `key` are compared with it letter by letter, which is most of the work."""
    letters = _letters(key) if len(key) <= _MISSPELT_MAX else frozenset()
    shares = ((2 * len(letters & _letters_of_name(name)) / (len(key) + len(name)), name) for name in names)
    likely = sorted((each for each in shares if each[0] >= _SIMILAR_SHARE), reverse=True)[:_COMPARED_MAX]
    if not likely:
        return None
    import difflib  # Slow to import; only misspelt keys need it.

    matches = difflib.get_close_matches(key, [name for _, name in likely], n=1, cutoff=_SIMILAR_SHARE)
    return matches[0] if matches else None


def _letters(text: str) -> frozenset[tuple[str, int]]:
    """The letters of a text, of which the second of a kind differs from the first."""
    seen: dict[str, int] = {}
    found = set()
    for letter in text:
        seen[letter] = count = seen.get(letter, 0) + 1
        found.add((letter, count))
    return frozenset(found)


_letters_of_name = lru_cache(maxsize=1024)(_letters)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The keys and values of a Java properties file. Raises OSError, or `SettingError` if malformed."""
    import javaproperties  # Slow to import; only properties files need it.

    with open(path, encoding="latin-1") as file:
        try:
            return dict(javaproperties.load(file))
        except ValueError as error:
            raise SettingError(f"{path} is not a valid properties file: {error}") from None


def settings_table(rows: Sequence[Setting], *, show_dynamic: bool = False) -> str:
    """The rows as a Markdown table, for docs/settings.md; `show_dynamic` adds a column for `dynamic`."""
    titles = ["Setting", "Type", "Default", "Allowed", *(["Dynamic"] if show_dynamic else []), "Meaning"]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for row in rows:
        allowed = row.allowed() if row.choices or row.minimum is not None or row.maximum is not None else ""
        default = "(required)" if row.default is REQUIRED else shown_value(row.default) or ""
        cells = [f"`{row.name}`", row.type.value, default, allowed, " ".join(row.doc.split())]
        if show_dynamic:
            cells.insert(-1, "yes" if row.dynamic else "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def shown_value(value: Any) -> str | None:
    """A setting's value as a properties file would have it; None if it is unset."""
    match value:
        case None:
            return None
        case True | False:
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
