"""Groups of settings: the checks of their declaration, and their values."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

import pytest

from holdfast_log.broker.setting_groups import Live, read_group, settings_group
from holdfast_log.clients.settings import Setting, SettingType

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


def test_a_group_is_read_with_its_nested_groups() -> None:
    assert read_group(Place, VALUES) == Place(Waits(500), None)


def test_a_group_of_dynamic_settings_has_the_present_values() -> None:
    values = dict(VALUES)
    throttling = Live(Throttling, values)
    assert throttling.current() == Throttling(7)
    values["throttled.rate"] = 9
    assert throttling.current() == Throttling(9)
    with pytest.raises(TypeError, match="Throttling has dynamic settings"):
        read_group(Throttling, values)


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        (
            ("wait_ms", Annotated[int, "fetch.wait.mx.ms"]),
            r"wait_ms: there is no setting fetch\.wait\.mx\.ms",
        ),
        (("wait_ms", int), r"wait_ms names no setting"),
        (
            ("wait_ms", Annotated[str, "fetch.wait.max.ms"]),
            r"wait_ms is declared as .*str.*, but fetch\.wait\.max\.ms is a int",
        ),
        (("rack", Annotated[int, "rack"]), r"rack is declared as .*int.*, but rack is a string"),
        (
            ("wait_seconds", Annotated[int, "fetch.wait.max.ms"]),
            r"wait_seconds is in .*seconds.*, fetch\.wait\.max\.ms in .*ms",
        ),
        (
            ("wait_ms", Annotated[int, "fetch.wait.max.ms"], field(default=400)),
            r"wait_ms is 400 by default, fetch\.wait\.max\.ms is 500",
        ),
        (("wait", Annotated[int, "fetch.wait.max.ms"]), r"wait is in no unit, fetch\.wait\.max\.ms in .*ms"),
    ],
)
def test_a_field_that_does_not_match_its_setting_is_refused(declaration: Any, complaint: str) -> None:
    group = make_dataclass("Group", [declaration], frozen=True)
    with pytest.raises(TypeError, match=rf"Group\.{complaint}"):
        settings_group(ROWS)(group)
