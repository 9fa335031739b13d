"""One record is one line of the broker's log, whatever clients put into it."""

from __future__ import annotations

import ast
import functools
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from twisted.python.failure import Failure

from holdfast_log.broker.process import log_lines
from holdfast_log.broker.process.log_file import open_log_file
from holdfast_log.broker.process.log_lines import LineFormatter, log_to
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.one_line import LINE_CHARACTERS_MAX, one_line

HOME = Path(__file__).parent.parent.parent.parent
SERVER_PACKAGES = ("broker", "coordinator")
LIBRARIES = ("clients", "pipeline", "holdfast_log", "testing", "checker", "command", "protocol")
"""Packages in processes whose log somebody else configures: they hand over single lines."""
FORGED = "[2031-01-01 00:00:00,000] INFO all is well (holdfast_log.broker)"
HOSTILE = (
    f"orders\n{FORGED}\r\n\x1b[2J\x1b]0;owned\x07\x08\x00\x7f\x85\x9b\u2028{FORGED}\u2029\u202eevil\u2066\u200b"
    f"\ud800\ufeff\v\f\x1c\x1d\x1e{FORGED}"
)
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "log": logging.WARNING,
}
PASSES_ON = {("coordinator/repeated_log.py", "text"), ("broker/requests/audit.py", "what + ', by %s'")}
"""Where a function logs the message that its caller gives it."""
_CONVERSION = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?([diouxXeEfFgGcrsa%])")


class Hostile:
    """Has the hostile text also as its representation, as an object of a careless class would."""

    def __str__(self) -> str:
        return HOSTILE

    def __repr__(self) -> str:
        return HOSTILE


class HostileError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class LogCall:
    """A call in the source that logs. `arguments` are those after the message, as expressions; None for a
    number of them that is only known when it runs."""

    where: str
    level: int
    message: str
    arguments: list[ast.expr] | None

    @property
    def conversions(self) -> list[str]:
        return [kind for kind in _CONVERSION.findall(self.message) if kind != "%"]

    def hostile_arguments(self) -> tuple[object, ...]:
        return tuple(_hostile(kind) for kind in self.conversions)


def _hostile(conversion: str) -> object:
    if conversion in "sra":
        return Hostile()
    return HOSTILE[6] if conversion == "c" else 2**70


@functools.cache
def log_calls(*packages: str) -> Sequence[LogCall]:
    sources = [source for package in packages for source in sorted((HOME / package).rglob("*.py"))]
    return [
        call
        for source in sources
        for tree in [ast.parse(source.read_text())]
        for call in _calls_in(str(source.relative_to(HOME)), tree, [tree])
    ]


def _calls_in(path: str, parent: ast.AST, scopes: list[ast.AST]) -> Iterator[LogCall]:
    """The calls below a node. `scopes` are the file and the functions that the node is in, from without."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Call):
            yield from _calls_of(path, node, scopes)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _calls_in(path, node, [*scopes, node] if is_function else scopes)


def _calls_of(path: str, node: ast.Call, scopes: list[ast.AST]) -> Iterator[LogCall]:
    found = _message_and_arguments(node)
    if found is None or (path, ast.unparse(found[0])) in PASSES_ON:
        return
    message, arguments, level = found
    is_known = not any(isinstance(argument, ast.Starred) for argument in arguments)
    for text in _texts(message, scopes):
        yield LogCall(f"{path}:{node.lineno}", level, text, arguments if is_known else None)


def _message_and_arguments(call: ast.Call) -> tuple[ast.expr, list[ast.expr], int] | None:
    """The message, its arguments and the level, if the call logs."""
    match call.func:
        case ast.Name(id="log_change"):
            return call.args[1], call.args[2:], logging.INFO
        case ast.Attribute(value=receiver, attr=attribute) if attribute in LEVELS:
            level = LEVELS[attribute]
            if call.args and _is_logger(call.args[0]):  # A `RepeatedLog`: logger, cause, message.
                return call.args[2], call.args[3:], level
            if _is_logger(receiver):
                first = 1 if attribute == "log" else 0
                return call.args[first], call.args[first + 1 :], level
    return None


def _is_logger(expression: ast.expr) -> bool:
    text = ast.unparse(expression)
    return text in ("_log", "logger", "_audit", "counted.logger") or text.startswith("logging.getLogger(")


def _texts(message: ast.expr, scopes: list[ast.AST]) -> list[str]:
    """The message; of a variable each text that the innermost function, or else one around it or the file,
    assigns to a variable of that name."""
    if not isinstance(message, ast.Name):
        return [_text(message)]
    for scope in reversed(scopes):
        texts = [
            _text(node.value)
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == message.id
        ]
        if texts:
            return texts
    raise AssertionError(f"the file assigns no message to {message.id}")


def _text(message: ast.expr) -> str:
    """The message, with the hostile text where an f-string would have a value."""
    match message:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue():
            return HOSTILE.replace("%", "%%")
    raise AssertionError(
        f"the message of this log call cannot be read from the source: {ast.unparse(message)}"
    )


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, at its most talkative, whose handlers the test may replace."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in list(logger.handlers):
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def log(root: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The broker's log file, while the process logs to it, and to nothing else, as a broker does."""
    handler = open_log_file(tmp_path, "server-7", {})
    log_to(handler)
    # Threads that earlier tests have left may log, too.
    earlier = [each for each in threading.enumerate() if each is not threading.current_thread()]
    handler.addFilter(lambda record: threading.current_thread() not in earlier)
    # pytest would keep each record for its report, and workers of xdist cannot send lone surrogates.
    monkeypatch.setattr(root, "addHandler", lambda handler: None)
    return tmp_path / "server-7.log"


def lines_of(log: Path) -> list[str]:
    """The lines of a log, as whatever program might split them."""
    return log.read_bytes().decode().splitlines()


def test_every_message_of_the_servers_stays_one_line_with_hostile_arguments(log: Path) -> None:
    calls = log_calls(*SERVER_PACKAGES)

    for call in calls:
        logging.getLogger("holdfast_log.test").log(call.level, call.message, *call.hostile_arguments())

    lines = lines_of(log)
    assert len(lines) == len(calls) > 200
    for call, line in zip(calls, lines, strict=True):
        assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] [A-Z]+ \S", line), call
        assert line.endswith(" (holdfast_log.test)") and line.isprintable(), call
        assert not any(kind in "sra" for kind in call.conversions) or "\\n[2031-" in line, call
        assert "does not fit its arguments" not in line, call


def test_every_message_has_as_many_arguments_as_it_names() -> None:
    wrong = [
        call.where
        for call in (*log_calls(*SERVER_PACKAGES), *log_calls(*LIBRARIES))
        if call.arguments is not None and len(call.arguments) != len(call.conversions)
    ]

    assert not wrong


def test_no_message_of_ours_has_a_line_break_of_its_own() -> None:
    assert [
        call.where
        for call in (*log_calls(*SERVER_PACKAGES), *log_calls(*LIBRARIES))
        if "\n" in _outside(call)
    ] == []


def _outside(call: LogCall) -> str:
    return call.message.replace(HOSTILE, "")


def test_libraries_hand_over_single_lines_because_applications_format_them() -> None:
    calls = log_calls(*LIBRARIES)
    wrong = [
        f"{call.where}: {ast.unparse(argument)} must go through one_line"
        for call in calls
        for kind, argument in zip(call.conversions, call.arguments or [], strict=True)
        if kind not in "dg" and not _is_safe(argument)
    ]

    assert len(calls) >= 6 and not wrong


def _is_safe(argument: ast.expr) -> bool:
    """Whether it is made fit for a line, or consists of our own counts."""
    text = ast.unparse(argument)
    return text.startswith("one_line(") or text == "total"


def test_only_one_file_configures_how_the_process_logs() -> None:
    configures = re.compile(r"\b(basicConfig|setFormatter|addHandler|StreamHandler|dictConfig|fileConfig)\b")
    found = {
        str(source.relative_to(HOME))
        for package in (*SERVER_PACKAGES, *LIBRARIES)
        for source in (HOME / package).rglob("*.py")
        if configures.search(source.read_text())
    }

    assert found == {"broker/process/log_lines.py"}


def test_a_traceback_keeps_its_lines_but_none_of_them_looks_like_a_record(log: Path) -> None:
    try:
        try:
            raise HostileError(HOSTILE)
        except HostileError as error:
            error.add_note(HOSTILE)
            raise ValueError(HOSTILE) from error
    except ValueError as error:
        logging.getLogger("x").error("Failed", exc_info=error)
        logging.getLogger("x").error("Failed later", exc_info=raised(Failure()), stack_info=True)

    lines = lines_of(log)
    records = [line for line in lines if not line.startswith("    ")]
    assert [line[26:] for line in records] == ["ERROR Failed (x)", "ERROR Failed later (x)"]
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith('      File "') and "test_log_lines" in line for line in lines)
    assert any("ValueError: orders" in line for line in lines)


def test_what_another_handler_has_formatted_is_not_taken_over(log: Path, root: logging.Logger) -> None:
    """The module `logging` keeps the first handler's traceback with the record, for all later ones."""
    careless = logging.StreamHandler(open(log.with_suffix(".other"), "w", errors="replace"))  # noqa: SIM115
    root.handlers.insert(0, careless)
    try:
        raise HostileError(f"\n{FORGED}")
    except HostileError as error:
        logging.getLogger("x").error("Failed", exc_info=error)
    careless.stream.close()

    assert FORGED in Path(careless.stream.name).read_text().splitlines()
    assert [line for line in lines_of(log) if line.startswith("[2031")] == []


def test_a_long_message_is_cut_and_says_how_much_is_missing(log: Path) -> None:
    logging.getLogger("x").info("%s", "a" * 100_000)
    logging.getLogger("x").info("%s", "\x1b" * 100_000)

    plain, escaped = lines_of(log)
    assert f"{'a' * LINE_CHARACTERS_MAX}… ({100_000 - LINE_CHARACTERS_MAX} characters cut) (x)" in plain
    assert f"\\x1b… ({100_000 - LINE_CHARACTERS_MAX // 4} characters cut) (x)" in escaped
    assert max(map(len, (plain, escaped))) < LINE_CHARACTERS_MAX + 100


def test_a_traceback_of_very_many_lines_is_cut_in_its_middle(log: Path) -> None:
    try:
        raise HostileError("first\n" + "\n".join(map(str, range(100_000))) + "\nlast")
    except HostileError as error:
        logging.getLogger("x").error("Failed", exc_info=error)

    lines = lines_of(log)
    assert len(lines) == 1 + log_lines.FIRST_LINES_MAX + 1 + log_lines.LAST_LINES_MAX
    assert re.fullmatch(r"    … \(\d+ lines cut\)", lines[1 + log_lines.FIRST_LINES_MAX])
    assert lines[-1] == "    last"


def test_a_log_call_with_wrong_arguments_still_gives_a_line() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise HostileError(HOSTILE)

    first, second = (
        LineFormatter().format(logging.LogRecord("x", logging.INFO, "", 0, message, (argument,), None))
        for message, argument in (("%d partitions", HOSTILE), ("%s", Broken()))
    )
    assert "'%d partitions' does not fit its arguments ('orders\\n[2031" in first and "TypeError" in first
    assert "'%s' does not fit its arguments (not shown, because of HostileError): HostileError" in second


@pytest.mark.parametrize(
    "text", ["Bestellungen-über-5-€", "注文", "😀", r"a\nb", "with spaces", "", "'quoted' \"twice\" %s"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


def test_every_character_that_is_not_printable_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if not character.isprintable():
            shown = one_line(character)
            assert shown.isascii() and shown.isprintable() and shown.startswith("\\")
    assert one_line("a\tb\x1b\u202e\ud800") == r"a\tb\x1b\u202e\ud800"


def test_an_error_that_ends_a_thread_and_one_in_a_destructor_are_records(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    log_lines.log_uncaught_errors()

    class Careless:
        def __del__(self) -> None:
            raise HostileError(f"\n{FORGED}")

    def fail() -> None:
        raise HostileError(f"\n{FORGED}")

    thread = threading.Thread(target=fail, name=f"worker\n{FORGED}")
    thread.start()
    thread.join()
    careless = Careless()
    del careless

    records = [line[26:] for line in lines_of(log) if not line.startswith("    ")]
    assert len(records) == 2
    assert records[0].startswith("ERROR Uncaught error in the thread worker\\n[2031")
    assert "__del__" in records[1]


_PROGRAM = """
import sys
from holdfast_log.broker.process.log_lines import log_to_output, log_uncaught_errors
log_to_output()
log_uncaught_errors()
from holdfast_log.broker.process.twisted_log import log_twisted
log_twisted()
from twisted.internet.defer import fail
import gc, logging
logging.getLogger("x").warning("%s", "é € \\n[2031]")
fail(ValueError("nobody looks\\n[2031] INFO forged"))
gc.collect()
raise ValueError("the end\\n[2031] INFO forged \\ud800")
"""


def test_a_process_prints_errors_that_nobody_has_handled_in_the_same_form() -> None:
    """In a process of its own, because Twisted's log can be sent elsewhere only once."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        encoding="ascii",
        env={"PYTHONPATH": str(HOME), "PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"},
        cwd=HOME,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1
    told, ended = done.stdout.splitlines(), done.stderr.splitlines()
    assert [line[26:] for line in told if not line.startswith("    ")] == [
        "WARNING \\xe9 \\u20ac \\n[2031] (x)",
        "CRITICAL Unhandled error in Deferred: (twisted)",
        "CRITICAL  (twisted)",
    ]
    assert "    [2031] INFO forged" in told
    assert [line[26:] for line in ended if not line.startswith("    ")] == [
        "CRITICAL The process ends: uncaught error (holdfast_log.broker.process.log_lines)"
    ]
    assert "    [2031] INFO forged \\ud800" in ended


def test_the_formatter_keeps_a_plain_record_short() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "Started %s", ("orders",), None)

    assert LineFormatter().format(record)[26:] == "INFO Started orders (x)"
