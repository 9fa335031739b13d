"""Brokers for tests, forked from one process that has imported the broker's modules.

Importing them takes most of the processor time of a broker's start, and the tests start hundreds of brokers.
Here a nursery, one for each process of tests, imports them once. A broker is a fork of it, a process of its
own that runs `python -m holdfast_log.broker` from the program's first line; only its imports find the modules
loaded. The reactor is not among them: each broker installs its own. Brokers that are started in another way
(by a launcher, with arguments of Python, from another checkout, by a script) do not come from the nursery.

A broker never outlives the nursery, and the nursery ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from holdfast_log.broker.process.supervisor import PROGRAM
from holdfast_log.broker.tools.broker_process import BackgroundBroker, ChildProcess
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT, import_path
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE

_REQUEST_BYTES_MAX = 1 << 17
_INTEGER_BYTES = 4
_LOADED = (
    "holdfast_log.broker.process.lifecycle",
    "holdfast_log.broker.process.lean_reactor",
    "holdfast_log.broker.process.log_file",
    "holdfast_log.broker.settings.command_line",
    "holdfast_log.coordinator.zookeeper.kazoo_zookeeper",
    "logging.handlers",
    "encodings.idna",
)
"""Modules that import the broker except for its messages and handlers, and not the reactor."""


class ForkedBroker(BackgroundBroker):
    """A broker of the nursery, unless it is started in a way of its own."""

    def _launch(self, config: Path, log: BinaryIO) -> ChildProcess:
        if self._launcher or self._python_arguments or self._checkout != IMPORT_ROOT:
            return super()._launch(config, log)
        environment = {**os.environ, "PYTHONPATH": import_path(IMPORT_ROOT)}
        return _nursery_for(environment).start(str(config), log, environment)


class ForkedProcess:
    """A process that the nursery has started, with what tests do to a `subprocess.Popen`.

    The nursery is its parent, and writes the exit status, as a `Popen` has it, to the pipe `status`.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self._returncode: int | None = None
        self._reading = threading.Lock()
        weakref.finalize(self, os.close, status)

    def poll(self) -> int | None:
        """The exit status; None while the process runs."""
        self._look(0)
        return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit status. Raises `subprocess.TimeoutExpired`."""
        self._look(timeout)
        if self._returncode is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return self._returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # It has ended in between.
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> None:
        """Learn the exit status, if there is one within this time."""
        if self._returncode is not None:
            return
        waiting = select.poll()
        waiting.register(self._status, select.POLLIN)
        if not waiting.poll(None if timeout_s is None else timeout_s * 1000):
            return
        with self._reading:
            if self._returncode is None:
                told = os.read(self._status, _INTEGER_BYTES)
                # A nursery that was killed tells nothing: the kernel has killed its brokers with it.
                self._returncode = int.from_bytes(told, signed=True) if told else -signal.SIGKILL


class Nursery:
    """The process that brokers are forked from, as the process of tests sees it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the tests.
            )

    def start(self, config: str, log: BinaryIO, environment: Mapping[str, str]) -> ForkedProcess:
        """Start a broker with this properties file and environment, its output going to `log`."""
        request = json.dumps({"config": config, "directory": os.getcwd(), "environment": dict(environment)})
        ours, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._requests, [request.encode()], [log.fileno(), theirs])
                answer = self._requests.recv(_INTEGER_BYTES)
        finally:
            os.close(theirs)
        assert answer, "the nursery of brokers has ended"
        return ForkedProcess(int.from_bytes(answer), ours)


_nurseries: dict[bool, Nursery] = {}
_starting = threading.Lock()


def _nursery_for(environment: Mapping[str, str]) -> Nursery:
    """The nursery whose modules are those of a broker with this environment."""
    is_pure = bool(environment.get(PURE_PYTHON_VARIABLE))
    with _starting:
        if is_pure not in _nurseries:
            _nurseries[is_pure] = Nursery(environment)
        return _nurseries[is_pure]


# -- in the nursery ------------------------------------------------------------------------------------------


def _serve(requests: socket.socket) -> str | None:
    """Start brokers and tell their ends. Returns, in a broker, its properties file; in the nursery None, once
    the process of tests has ended."""
    nursery = os.getpid()
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                selector.unregister(key.fileobj)
                _tell_end(*key.data)
                continue
            request, handed, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 2)
            if not request:
                return None
            wanted, (log, status) = json.loads(request), handed
            pid = os.fork()
            if pid == 0:
                selector.close()
                requests.close()
                _begin(nursery, log, wanted["directory"], wanted["environment"])
                return str(wanted["config"])
            os.close(log)
            pidfd = os.pidfd_open(pid)
            selector.register(pidfd, selectors.EVENT_READ, (pid, pidfd, status))
            requests.send(pid.to_bytes(_INTEGER_BYTES))


def _tell_end(pid: int, pidfd: int, status: int) -> None:
    _, ended = os.waitpid(pid, 0)
    os.close(pidfd)
    with contextlib.suppress(BrokenPipeError):  # Nobody asks any more.
        os.write(status, os.waitstatus_to_exitcode(ended).to_bytes(_INTEGER_BYTES, signed=True))
    os.close(status)


def _begin(nursery: int, log: int, directory: str, environment: Mapping[str, str]) -> None:
    """Give this fork what a new process has: a group, an environment, and no open file but its output."""
    os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != nursery:
        os._exit(1)  # It ended before the kernel knew.
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)


def _import_the_broker() -> None:
    """Import what a broker imports until it serves, all messages and handlers included."""
    # Here, since the tests import this module, and need none of it.
    from holdfast_log.broker.wiring.handlers import handler_types
    from holdfast_log.protocol.catalog import APIS

    for module in _LOADED:
        importlib.import_module(module)
    handler_types()
    len(APIS)  # Imports every message.


def main() -> None:
    _import_the_broker()
    assert "twisted.internet.reactor" not in sys.modules
    gc.collect()
    gc.freeze()  # Brokers walk, and so copy, only what they have made themselves.
    config = _serve(socket.socket(fileno=int(sys.argv[1])))
    if config is not None:
        sys.argv[1:] = [config]
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
