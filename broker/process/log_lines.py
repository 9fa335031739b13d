"""The form of the broker's log: one record is one line, also if a client has chosen its words.

Names, ids, reasons and the texts of errors come from clients, from other brokers and from ZooKeeper. A line
break in one of them would begin a line that looks like a record of the broker, and an escape sequence would
act on the terminal that shows the log. So every record passes through `LineFormatter`, those of Twisted
and uncaught errors included.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast_log.protocol.one_line import one_line

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

FORMAT = "HOLDFAST_LOG_FORMAT"
"""Environment variable: `json` for one JSON object per line; anything else for lines to read."""
_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
FIRST_LINES_MAX = 150
LAST_LINES_MAX = 50
"""Lines of a traceback that are logged: its first and its last ones. The last ones have the error's text."""
_INDENT = "    "

_log = logging.getLogger(__name__)


class LineFormatter(logging.Formatter):
    """Formats each record as one line, and its traceback as indented lines below.

    Unprintable characters are escaped, and the message and each line of a traceback are cut at
    `LINE_CHARACTERS_MAX` characters (`protocol.one_line`). A message that does not fit its arguments is shown
    beside them, so that a mistake in a log call loses no line and raises no error.
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record.message = one_line(_message_of(record))
        record.asctime = self.formatTime(record, self.datefmt)
        line = one_line(self.formatMessage(record), sys.maxsize)
        # Not record.exc_text: another handler may have left there what it has formatted in its own way.
        lines = [line]
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().rstrip("\n")
    except Exception as error:
        return (
            f"{_represented(record.msg)} does not fit its arguments {_represented(record.args)}: "
            f"{type(error).__name__}"
        )


def _represented(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"(not shown, because of {type(error).__name__})"


def _indented(text: str) -> list[str]:
    """The lines of a traceback, none of which begins as a record does."""
    lines = text.split("\n")
    left_out = len(lines) - FIRST_LINES_MAX - LAST_LINES_MAX
    if left_out > 0:
        lines[FIRST_LINES_MAX:-LAST_LINES_MAX] = [f"… ({left_out} lines cut)"]
    return [_INDENT + one_line(line) for line in lines]


class JsonFormatter(logging.Formatter):
    """Formats each record, its traceback included, as one line of JSON in ASCII, for programs that collect
    logs. Texts are cut as `LineFormatter` cuts them; what is unprintable is escaped as JSON does it."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": one_line(_message_of(record)),
            "thread": record.threadName,
            "pid": record.process,
        }
        if record.exc_info:
            fields["error"] = _text_of(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = _text_of(self.formatStack(record.stack_info))
        return json.dumps(fields, ensure_ascii=True, default=_represented)


def _utc(seconds: float) -> str:
    """A moment as 2026-11-27T20:15:00.123Z."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text_of(traceback: str) -> str:
    return "\n".join(line.removeprefix(_INDENT) for line in _indented(traceback))


def formatter(environment: Mapping[str, str] = os.environ) -> logging.Formatter:
    """The form of the process's log: `LineFormatter`, or `JsonFormatter` if HOLDFAST_LOG_FORMAT is json."""
    return JsonFormatter() if environment.get(FORMAT, "").lower() == "json" else LineFormatter()


def log_to(handler: logging.Handler) -> None:
    """Send the process's log to `handler`, and nowhere else, in the form of `formatter`."""
    handler.setFormatter(formatter())
    root = logging.getLogger()
    for other in list(root.handlers):
        root.removeHandler(other)
    root.addHandler(handler)


def log_to_output() -> None:
    """Send the process's log to the standard output. What its encoding does not have becomes an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    log_to(logging.StreamHandler(sys.stdout))


def log_uncaught_errors() -> None:
    """Log errors that end a thread, and errors in destructors, as records. The error that ends the process
    goes to the standard error output, in the same form."""
    sys.excepthook = _process_ends
    threading.excepthook = _thread_ends
    sys.unraisablehook = _destructor_failed


def _process_ends(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    record = _log.makeRecord(
        _log.name, logging.CRITICAL, "", 0, "The process ends: uncaught error", (), (kind, error, traceback)
    )
    print(formatter().format(record), file=sys.stderr)


def _thread_ends(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_value is not None and not issubclass(ended.exc_type, SystemExit):
        name = ended.thread.name if ended.thread is not None else "that is gone"
        _log.error(
            "Uncaught error in the thread %s",
            name,
            exc_info=(ended.exc_type, ended.exc_value, ended.exc_traceback),
        )


def _destructor_failed(ignored: UnraisableHookArgs) -> None:
    error = ignored.exc_value
    if error is not None:
        _log.error(
            "%s: %s",
            ignored.err_msg or "Exception ignored in",
            _represented(ignored.object),
            exc_info=(ignored.exc_type, error, ignored.exc_traceback),
        )
