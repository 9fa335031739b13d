"""Levels of loggers are shown and altered as Kafka's brokers do, all of a request or nothing."""

from __future__ import annotations

import logging

import pytest

from holdfast_log.broker.settings.alterations import Alteration
from holdfast_log.broker.settings.loggers import LoggerLevels, level_name
from holdfast_log.protocol.configs import ConfigOperation
from holdfast_log.protocol.errors import BrokerError, ErrorCode


class Loggers:
    """Loggers apart from those of this process."""

    def __init__(self) -> None:
        self.root = logging.RootLogger(logging.INFO)
        self.root.manager = logging.Manager(self.root)
        for name in ("app", "app.part", "app.part.deep.er"):
            self.root.manager.getLogger(name)
        self.levels = LoggerLevels(self.root)

    def set(self, name: str, value: str | None, *, validate_only: bool = False) -> None:
        self.levels.alter([Alteration(name, ConfigOperation.SET, value)], validate_only=validate_only)


def test_a_level_holds_for_the_loggers_below_and_ends_with_its_deletion() -> None:
    loggers = Loggers()
    assert loggers.levels.levels() == dict.fromkeys(
        ["root", "app", "app.part", "app.part.deep", "app.part.deep.er"], "INFO"
    )
    loggers.set("app.part", "DEBUG")
    loggers.set("root", "ERROR")
    assert loggers.levels.levels() == {
        "root": "ERROR", "app": "ERROR",
        "app.part": "DEBUG", "app.part.deep": "DEBUG", "app.part.deep.er": "DEBUG",
    }  # fmt: skip
    assert loggers.root.manager.getLogger("app.part.deep.er").isEnabledFor(logging.DEBUG)
    loggers.levels.alter([Alteration("app.part", ConfigOperation.DELETE, None)], validate_only=False)
    assert set(loggers.levels.levels().values()) == {"ERROR"}
    assert loggers.levels.levels(["app", "nobody"]) == {"app": "ERROR"}


@pytest.mark.parametrize(
    ("alteration", "code", "message"),
    [
        (Alteration("nobody", ConfigOperation.SET, "INFO"), ErrorCode.INVALID_CONFIG, "does not exist"),
        (
            Alteration("app", ConfigOperation.SET, "LOUD"),
            ErrorCode.INVALID_CONFIG,
            "Valid log levels",
        ),
        (Alteration("app", ConfigOperation.SET, None), ErrorCode.INVALID_CONFIG, "Valid log levels"),
        (Alteration("root", ConfigOperation.DELETE, None), ErrorCode.INVALID_REQUEST, "not allowed"),
        (Alteration("app", ConfigOperation.APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND"),
        (Alteration("app", ConfigOperation.SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST, "SUBTRACT"),
        (Alteration("app.part", ConfigOperation.SET, "INFO"), ErrorCode.INVALID_REQUEST, "more than once"),
    ],
)
def test_a_refused_request_changes_nothing(alteration: Alteration, code: ErrorCode, message: str) -> None:
    loggers = Loggers()
    before = loggers.levels.levels()
    with pytest.raises(BrokerError, match=message) as refused:
        loggers.levels.alter(
            [Alteration("app.part", ConfigOperation.SET, "DEBUG"), alteration], validate_only=False
        )
    assert refused.value.code is code
    assert loggers.levels.levels() == before


def test_a_validated_request_changes_nothing() -> None:
    loggers = Loggers()
    loggers.set("app", "DEBUG", validate_only=True)
    assert loggers.levels.levels(["app"]) == {"app": "INFO"}


@pytest.mark.parametrize(("level", "name"), [(50, "FATAL"), (35, "WARN"), (10, "DEBUG"), (1, "DEBUG")])
def test_levels_have_kafkas_names(level: int, name: str) -> None:
    assert level_name(level) == name
