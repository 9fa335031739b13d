"""Java programs of the tests: compiled once, and Kafka's tools run by one process.

A start of Java takes seconds of processor time, most of them for what each program loads anew, and `java
Program.java` compiles the program each time.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from benchmarks.apache_kafka import SMALL
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.private_files import make_private
from holdfast_log.coordinator.tools.directories import cache_directory

DRIVERS = Path(__file__).parent / "drivers"
_RELEASE = "17"
"""The Java whose class files are made: the oldest that the tests need."""
_COMPILE_TIMEOUT_S = 300
_INTEGER = struct.Struct(">i")
_LENGTH = struct.Struct(">H")
_HEAD = struct.Struct(">?i")
QUIET = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.SimpleLayout
"""
"""Settings of Kafka's log, so that standard output is the program's own."""


def with_driver(command: Sequence[str], name: str) -> list[str]:
    """The command that runs a driver, from one that ends with its class path."""
    *options, class_path = command
    return [*options, f"{class_path}:{compiled(name, class_path)}", name]


@cache
def compiled(name: str, class_path: str) -> Path:
    """The directory with the classes of a driver, in the user's cache: they are made if the program or the
    class path is new."""
    source = DRIVERS / f"{name}.java"
    digest = hashlib.sha256(f"{_RELEASE} {class_path} ".encode() + source.read_bytes()).hexdigest()
    directory = cache_directory() / "apache-kafka" / "drivers" / f"{name}-{digest[:16]}"
    if directory.exists():
        return directory
    make_private(directory.parent)
    made = Path(tempfile.mkdtemp(dir=directory.parent))
    done = subprocess.run(
        ["java", *SMALL, "-m", "jdk.compiler/com.sun.tools.javac.Main", "--release", _RELEASE, "-proc:none",
         "-cp", class_path, "-d", str(made), str(source)],
        capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    try:
        made.rename(directory)
    except OSError:
        shutil.rmtree(made)  # Another process was faster.
    return directory


@dataclass(slots=True, frozen=True)
class Done:
    """What a tool has done: its exit status, and what it wrote to standard output and to standard error."""

    status: int
    output: str
    errors: str


class ToolRunner:
    """A process that runs Kafka's command-line tools of one class path, one after the other."""

    def __init__(self, class_path: str) -> None:
        self.class_path = class_path
        self._directory = tempfile.TemporaryDirectory(prefix="holdfast-kafka-tools-")
        self._errors = Path(self._directory.name) / "errors"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, tool: str, *arguments: str, timeout_s: float) -> Done:
        """Run the main method of a class. Fails if the process ends without an answer, or is late and killed.
        The status is 0 if the tool ends the process."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        words = [word.encode() for word in (tool, *arguments)]
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            process.stdin.write(_INTEGER.pack(len(words)))
            process.stdin.write(b"".join(_LENGTH.pack(len(word)) + word for word in words))
            process.stdin.flush()
            goes_on, status = _HEAD.unpack(process.stdout.read(_HEAD.size))
            done = Done(status, _text(process.stdout), _text(process.stdout))
        except (OSError, struct.error):
            self._end()
            raise AssertionError(
                f"{tool} {arguments} gave no answer within {timeout_s} s:\n{self._errors.read_text()[-3000:]}"
            ) from None
        finally:
            late.cancel()
        if not goes_on:
            self._end()
        return done

    def stop(self) -> None:
        """End the process."""
        self._end()
        self._directory.cleanup()

    def _start(self) -> subprocess.Popen[bytes]:
        log4j = Path(self._directory.name) / "log4j.properties"
        log4j.write_text(QUIET)
        command = ["java", *SMALL, f"-Dlog4j.configuration=file:{log4j}", "-cp", self.class_path]
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                with_driver(command, "ToolRunner"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=die_with_parent,
            )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _text(answers: IO[bytes]) -> str:
    (length,) = _INTEGER.unpack(answers.read(_INTEGER.size))
    return answers.read(length).decode(errors="replace")


_runners: list[ToolRunner] = []


def run_tool(class_path: str, tool: str, *arguments: str, timeout_s: float = 300) -> Done:
    """Run one of Kafka's tools. One process runs those of a class path that this process of tests asks for
    one after the other; it ends with the process of tests, or when another class path is asked for."""
    if not _runners:
        atexit.register(_stop)
    if not _runners or _runners[0].class_path != class_path:
        _stop()
        _runners.append(ToolRunner(class_path))
    return _runners[0].run(tool, *arguments, timeout_s=timeout_s)


def _stop() -> None:
    while _runners:
        _runners.pop().stop()
