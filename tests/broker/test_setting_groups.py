"""Groups of settings: what is checked where they are declared, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from broker.setting_groups import Live, read_group, settings_group
from clients.settings import Setting, SettingType

ROWS = (
    Setting("fetch.wait.max.ms", SettingType.INT, 500, ""),
    Setting("rack", SettingType.STRING, None, ""),
    Setting("throttled.rate", SettingType.LONG, 7, "", dynamic=True),
)
VALUES: dict[str, Any] = {row.name: row.default for row in ROWS}


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class Waits:
    wait_ms_max: Annotated[int, "fetch.wait.max.ms"]


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class Place:
    waits: Waits
    rack: Annotated[str | None, "rack"]


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class Throttling:
    rate: Annotated[int, "throttled.rate"]


@dataclass(frozen=True)
class Misspelt:
    wait_ms: Annotated[int, "fetch.wait.mx.ms"]


@dataclass(frozen=True)
class MisTyped:
    wait_ms: Annotated[str, "fetch.wait.max.ms"]


@dataclass(frozen=True)
class Unset:
    rack: Annotated[int, "rack"]


@dataclass(frozen=True)
class InSeconds:
    wait_seconds: Annotated[int, "fetch.wait.max.ms"]


@dataclass(frozen=True)
class WithoutUnit:
    wait: Annotated[int, "fetch.wait.max.ms"]


@dataclass(frozen=True)
class OtherDefault:
    wait_ms: Annotated[int, "fetch.wait.max.ms"] = 400


@dataclass(frozen=True)
class NotASetting:
    wait_ms: int


def test_a_group_is_read_whole_with_the_groups_in_it() -> None:
    assert read_group(Place, VALUES) == Place(Waits(500), None)


def test_dynamic_settings_are_those_of_the_moment() -> None:
    values = dict(VALUES)
    throttling = Live(Throttling, values)
    assert throttling.current() == Throttling(7)
    values["throttled.rate"] = 9
    assert throttling.current() == Throttling(9)
    with pytest.raises(TypeError, match="Throttling has dynamic settings"):
        read_group(Throttling, values)


@pytest.mark.parametrize(
    ("group", "complaint"),
    [
        (Misspelt, r"Misspelt\.wait_ms: there is no setting fetch\.wait\.mx\.ms"),
        (NotASetting, r"NotASetting\.wait_ms names no setting"),
        (MisTyped, r"MisTyped\.wait_ms is declared as .*str.*, but fetch\.wait\.max\.ms is a int"),
        (Unset, r"Unset\.rack is declared as .*int.*, but rack is a string"),
        (InSeconds, r"InSeconds\.wait_seconds is in .*seconds.*, fetch\.wait\.max\.ms in .*ms"),
        (OtherDefault, r"OtherDefault\.wait_ms is 400 by default, fetch\.wait\.max\.ms is 500"),
        (WithoutUnit, r"WithoutUnit\.wait is in no unit, fetch\.wait\.max\.ms in .*ms"),
    ],
)
def test_a_field_that_does_not_fit_its_setting_is_refused(group: type, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        settings_group(ROWS)(group)
