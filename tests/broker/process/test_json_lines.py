"""With HOLDFAST_LOG_FORMAT=json each record is one line that a JSON reader takes, whatever is in it."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest

from holdfast_log.broker.process.log_lines import FORMAT, JsonFormatter, LineFormatter, formatter
from holdfast_log.protocol.one_line import LINE_CHARACTERS_MAX


def formatted(message: str, *arguments: object, error: BaseException | None = None) -> dict[str, object]:
    """A record, formatted and read back."""
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("a.b", logging.WARNING, "f.py", 1, message, arguments, exc_info)
    line = JsonFormatter().format(record)
    assert "\n" not in line and line.isascii()
    fields: dict[str, object] = json.loads(line)
    assert abs(datetime.fromisoformat(str(fields["time"])).timestamp() - record.created) < 0.002
    assert datetime.fromisoformat(str(fields["time"])).tzinfo == UTC
    return fields


def test_a_record_has_its_fields() -> None:
    fields = formatted("topic %s has %d", "orders", 3)
    assert (fields["level"], fields["logger"], fields["message"]) == ("WARNING", "a.b", "topic orders has 3")
    assert "error" not in fields


HOSTILE = ('x\n{"level": "INFO"}', "\x1b[2J", '"quote" \\ ', "\ud800", "\u2028", "x" * 10**6)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_text_stays_inside_its_field(hostile: str) -> None:
    fields = formatted("topic %s", hostile)
    assert fields["level"] == "WARNING"
    assert len(str(fields["message"])) <= LINE_CHARACTERS_MAX + 200
    assert "\n" not in str(fields["message"]) and "\x1b" not in str(fields["message"])


def test_a_traceback_is_in_a_field() -> None:
    try:
        raise KeyError("gone\nforever")
    except KeyError as error:
        fields = formatted("it failed", error=error)
    assert "KeyError" in str(fields["error"]) and "Traceback" in str(fields["error"])


def test_a_message_that_does_not_fit_its_arguments_is_shown_beside_them() -> None:
    assert "does not fit its arguments" in str(formatted("%d", "x")["message"])


def test_the_environment_chooses_the_form() -> None:
    assert isinstance(formatter({FORMAT: "json"}), JsonFormatter)
    assert isinstance(formatter({FORMAT: "JSON"}), JsonFormatter)
    assert isinstance(formatter({}), LineFormatter)
    assert isinstance(formatter({FORMAT: "text"}), LineFormatter)
