"""Groups of settings: frozen dataclasses whose fields are read from the settings that they name.

    @settings_group(ROWS)
    @dataclass(frozen=True, slots=True)
    class FetchRequestSettings:
        max_bytes: Annotated[int, "fetch.max.bytes"]

The object that uses the settings gets the whole group. The import of the group's module checks that each
field's setting exists and has the field's type and unit. A group with a dynamic setting is passed as `Live`,
so that its reader sees the present value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from holdfast_log.clients.settings import Setting, SettingType

G = TypeVar("G")

_UNITS = frozenset({"ms", "seconds", "minutes", "hours", "bytes", "percentage"})
_TYPES: Mapping[SettingType, Any] = {
    SettingType.STRING: str,
    SettingType.PASSWORD: str,
    SettingType.BOOLEAN: bool,
    SettingType.INT: int,
    SettingType.LONG: int,
    SettingType.DOUBLE: float,
    SettingType.LIST: tuple[str, ...],
}


@dataclass(frozen=True, slots=True)
class _Group:
    """`settings` are the names by field; `groups` the fields that are groups themselves."""

    settings: Mapping[str, str]
    groups: Mapping[str, type]
    is_dynamic: bool


_GROUPS: dict[type, _Group] = {}


def settings_group(rows: Sequence[Setting]) -> Callable[[type[G]], type[G]]:
    """Make a frozen dataclass a group of settings declared in `rows`.

    Each field is annotated with its setting's name, or is a settings group itself. Raises TypeError if the
    setting does not exist, or has another type, unit or default than the field.
    """
    by_name = {row.name: row for row in rows}

    def register(group: type[G]) -> type[G]:
        types = get_type_hints(group, include_extras=True)
        settings: dict[str, str] = {}
        groups: dict[str, type] = {}
        is_dynamic = False
        for each in fields(group):  # type: ignore[arg-type]
            where = f"{group.__qualname__}.{each.name}"
            declared = types[each.name]
            if declared in _GROUPS:
                groups[each.name] = declared
                is_dynamic = is_dynamic or _GROUPS[declared].is_dynamic
                continue
            if get_origin(declared) is not Annotated:
                raise TypeError(f"{where} names no setting")
            annotation, name = get_args(declared)
            row = by_name.get(name)
            if row is None:
                raise TypeError(f"{where}: there is no setting {name}")
            _check_field(where, each.name, annotation, row)
            if each.default is not MISSING and each.default != row.default:
                raise TypeError(f"{where} is {each.default} by default, {row.name} is {row.default}")
            settings[each.name] = row.name
            is_dynamic = is_dynamic or row.dynamic
        _GROUPS[group] = _Group(settings, groups, is_dynamic)
        return group

    return register


def _check_field(where: str, name: str, annotation: Any, row: Setting) -> None:
    expected = _TYPES[row.type]
    if annotation not in (expected, expected | None if row.default is None else expected):
        raise TypeError(f"{where} is declared as {annotation}, but {row.name} is a {row.type.value}")
    of_field, of_row = _UNITS & set(name.split("_")), _UNITS & set(row.name.split("."))
    if "size" in row.name.split("."):
        of_row = of_field - {"ms"}  # Some of Kafka's settings in bytes have no unit in their names.
    if of_field != of_row:
        raise TypeError(f"{where} is in {set(of_field) or 'no unit'}, {row.name} in {set(of_row) or 'none'}")


def is_settings_group(candidate: Any) -> bool:
    return candidate in _GROUPS


def read_group(group: type[G], settings: Mapping[str, Any]) -> G:
    """The group with the values of `settings`. Raises TypeError for a group with dynamic settings, which must
    be passed as `Live`: its values would never change."""
    if _GROUPS[group].is_dynamic:
        raise TypeError(f"{group.__qualname__} has dynamic settings: pass Live[{group.__qualname__}]")
    return _read(group, settings)


def _read(group: type[G], settings: Mapping[str, Any]) -> G:
    found = _GROUPS[group]
    values = {name: settings[setting] for name, setting in found.settings.items()}
    return group(**values, **{name: _read(part, settings) for name, part in found.groups.items()})


class Live(Generic[G]):
    """A settings group that follows changes of `settings`, the values in force."""

    def __init__(self, group: type[G], settings: Mapping[str, Any]) -> None:
        self._group = group
        self._settings = settings

    def current(self) -> G:
        """The group with the present values."""
        return _read(self._group, self._settings)
