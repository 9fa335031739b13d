"""Runs several brokers, each in a process of its own (`broker.processes`), and starts anew one that dies.

The supervisor serves no client. It stops the brokers in order, the last one first, each only when the one
before has ended: leadership then moves once from broker to broker, not between two that both stop.

States of one process, and what ends each:

    starting   serves: serving       ends: waiting, or the end of all if it has never served
    serving    ends: waiting         stop: stopping
    waiting    delay is over: starting
    stopping   ends: stopped         not ended in time: killed
"""

from __future__ import annotations

import enum
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from holdfast_log.broker.process import pid_file
from holdfast_log.broker.process.service_manager import READY, STOPPING, VARIABLE, tell
from holdfast_log.coordinator.parent_process import die_with_parent

PROGRAM = "holdfast_log.broker"
"""The module that runs a broker."""
_FIRST_DELAY_S = 1.0
_LONGEST_DELAY_S = 30.0
_SERVED_LONG_S = 60.0
"""A process that has served for so long is started anew after the first delay again."""
STOP_TIMEOUT_S = 90.0
_LOOK_S = 0.1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

_log = logging.getLogger(__name__)


class Process(Protocol):
    """A broker's process that was started."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit status, a negative signal number if it was killed; None while it runs."""
        ...

    def description(self) -> dict[str, Any] | None:
        """What the broker says of itself once it serves; None before."""
        ...

    def send_signal(self, number: int) -> None: ...


class ProcessState(enum.Enum):
    STARTING = "starting"
    SERVING = "serving"
    WAITING = "waiting"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(slots=True)
class SupervisedBroker:
    """One of the brokers. Times in s, by the supervisor's clock; `since_s` is the time of its last change."""

    number: int
    state: ProcessState = ProcessState.STOPPED
    process: Process | None = None
    since_s: float = 0.0
    delay_s: float = _FIRST_DELAY_S
    has_served: bool = False


class Supervisor:
    """The state of all members. `start(number)` starts a process; `now_s` is a clock that nobody sets.

    Call `look` after each signal, and every `_LOOK_S`. `is_over` says that no process runs any more.
    `status` is then the exit status: 1 if a broker did not start or had to be killed.
    """

    def __init__(self, count: int, start: Callable[[int], Process], now_s: Callable[[], float]) -> None:
        self.members = [SupervisedBroker(number) for number in range(count)]
        self.status = 0
        self._start_process = start
        self._now_s = now_s
        self._is_stopping = False

    @property
    def is_over(self) -> bool:
        return self._is_stopping and all(member.state is ProcessState.STOPPED for member in self.members)

    @property
    def descriptions(self) -> list[dict[str, Any]] | None:
        """What the brokers say of themselves; None until all of them serve."""
        found = [member.process and member.process.description() for member in self.members]
        return [each for each in found if each] if all(found) else None

    def start(self) -> None:
        for member in self.members:
            self._start(member)

    def stop(self) -> None:
        """Begin to stop all brokers. Called again, the others are not waited for, nor the clean stop."""
        if self._is_stopping:
            for member in self.members:
                self._signal(member, signal.SIGTERM)
            return
        self._is_stopping = True
        for member in self.members:
            if member.state is ProcessState.WAITING:
                member.state = ProcessState.STOPPED
        self._stop_next()

    def look(self) -> None:
        """Find out what has changed, and do what follows."""
        now_s = self._now_s()
        for member in self.members:
            process = member.process
            if process is not None and (status := process.poll()) is not None:
                member.process = None
                self._ended(member, process.pid, status)
            elif (
                member.state is ProcessState.STARTING
                and process is not None
                and process.description() is not None
            ):
                member.state, member.since_s, member.has_served = ProcessState.SERVING, now_s, True
            elif member.state is ProcessState.WAITING and now_s - member.since_s >= member.delay_s:
                member.delay_s = min(2 * member.delay_s, _LONGEST_DELAY_S)
                self._start(member)
            elif member.state is ProcessState.STOPPING and now_s - member.since_s >= STOP_TIMEOUT_S:
                _log.error(
                    "Killing broker process %d: it has not stopped in %.0f s", member.number, STOP_TIMEOUT_S
                )
                self.status = 1
                self._signal(member, signal.SIGKILL)
        if self._is_stopping:
            self._stop_next()

    def _start(self, member: SupervisedBroker) -> None:
        member.process = self._start_process(member.number)
        member.state, member.since_s = ProcessState.STARTING, self._now_s()
        _log.info("Started broker process %d (process id %d)", member.number, member.process.pid)

    def _ended(self, member: SupervisedBroker, pid: int, status: int) -> None:
        served_s = self._now_s() - member.since_s if member.state is ProcessState.SERVING else 0.0
        member.since_s = self._now_s()
        if self._is_stopping:
            member.state = ProcessState.STOPPED
            self.status = self.status or (1 if status else 0)
            return
        if not member.has_served:
            _log.error(
                "Stopping: broker process %d (process id %d) did not start: %s. Its log says why",
                member.number,
                pid,
                how_it_ended(status),
            )
            member.state, self.status = ProcessState.STOPPED, 1
            self.stop()
            return
        if served_s >= _SERVED_LONG_S:
            member.delay_s = _FIRST_DELAY_S
        member.state = ProcessState.WAITING
        _log.error(
            "Broker process %d (process id %d) has ended: %s. It is started again in %.0f s",
            member.number,
            pid,
            how_it_ended(status),
            member.delay_s,
        )

    def _stop_next(self) -> None:
        """Stop the last broker that runs, unless one is being stopped."""
        running = [member for member in self.members if member.state is not ProcessState.STOPPED]
        if not running or any(member.state is ProcessState.STOPPING for member in running):
            return
        last = running[-1]
        last.state, last.since_s = ProcessState.STOPPING, self._now_s()
        self._signal(last, signal.SIGTERM)

    def _signal(self, member: SupervisedBroker, number: int) -> None:
        if member.process is not None:
            member.process.send_signal(number)


class _ChildProcess:
    """A broker as a child of this process. `ready_file` is the file that it writes once it serves."""

    def __init__(self, command: Sequence[str], ready_file: Path) -> None:
        ready_file.unlink(missing_ok=True)
        self._ready_file = ready_file
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self._process = subprocess.Popen(
            [*command, "--ready-file", str(ready_file)],
            stdin=subprocess.DEVNULL,
            env=environment,
            preexec_fn=_prepare_child,
            process_group=0,  # Ctrl-C is for the supervisor, which stops the brokers in order.
        )
        self._description: dict[str, Any] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def description(self) -> dict[str, Any] | None:
        if self._description is None:
            with suppress(OSError):
                self._description = json.loads(self._ready_file.read_text())
        return self._description

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)


def _prepare_child() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    die_with_parent(signal.SIGTERM)


def run(
    given: Sequence[str],
    overrides: Sequence[dict[str, str]],
    directories: Sequence[str],
    ready_file: str | None,
) -> int:
    """Run one broker for each of `overrides` until SIGTERM or SIGINT. Returns the exit status.

    `given` are the arguments of the broker's program for all of them; each also gets the settings in its
    `overrides`. `directories` are the log directories of process 0; the first gets the file with this
    process's id, for server-stop.sh. `ready_file` is written once all brokers serve.
    """
    # Before the first child: none of them is missed, and a signal that comes now is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    own_pid_file = pid_file.supervisor_path_of(directories)
    with tempfile.TemporaryDirectory(prefix="holdfast-brokers-") as place:

        def start(number: int) -> Process:
            command = [sys.executable, "-P", "-m", PROGRAM, *given, *_options(overrides[number])]
            return _ChildProcess(command, Path(place, f"ready-{number}"))

        supervisor = Supervisor(len(overrides), start, time.monotonic)
        try:
            supervisor.start()
            _supervise(supervisor, own_pid_file, ready_file)
        finally:
            pid_file.remove(own_pid_file)
            if ready_file is not None:
                Path(ready_file).unlink(missing_ok=True)
    return supervisor.status


def _supervise(supervisor: Supervisor, own_pid_file: Path, ready_file: str | None) -> None:
    is_announced = False
    while not supervisor.is_over:
        received = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        if received is not None and received.si_signo != signal.SIGCHLD:
            _log.info("Received %s: stopping the brokers", signal.Signals(received.si_signo).name)
            tell(STOPPING, "stopping the brokers")
            supervisor.stop()
        supervisor.look()
        if not is_announced and (descriptions := supervisor.descriptions) is not None:
            is_announced = True
            pid_file.write(own_pid_file)
            _write_ready(ready_file, descriptions)
            tell(READY, f"{len(descriptions)} brokers serve")


def _write_ready(ready_file: str | None, descriptions: list[dict[str, Any]]) -> None:
    if ready_file is None:
        return
    temporary = Path(ready_file + ".tmp")
    temporary.write_text(json.dumps({"pid": os.getpid(), "brokers": descriptions}) + "\n")
    temporary.replace(ready_file)


def _options(overrides: dict[str, str]) -> Iterator[str]:
    for name, value in overrides.items():
        yield from ("--override", f"{name}={value}")


def how_it_ended(status: int) -> str:
    """What an exit status says, negative for a signal, in words."""
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
