"""Stops the broker started from a properties file: `server-stop.sh [config/server.properties]`."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast_log.broker.log.settings import log_directories
from holdfast_log.broker.process import pid_file
from holdfast_log.broker.process.derived_settings import process_count
from holdfast_log.broker.settings.command_line import read_settings
from holdfast_log.clients.settings import SettingError

_WAIT_S = 60.0


class StopError(Exception):
    """No broker is running, or it did not stop in time; the message says which."""


def stop_broker_of(properties: str, overrides: Sequence[str]) -> int:
    """Stop the broker that was started with these properties and overrides, and return its process id.

    Raises `StopError`, `SettingError` or OSError.
    """
    settings = read_settings(properties, overrides)
    directories = log_directories(settings)
    of_all = pid_file.supervisor_path_of(directories)
    if (pid := pid_file.read(of_all)) is not None and _is_broker(pid):
        return stop(of_all, _WAIT_S * process_count(settings))  # One broker is stopped after the other.
    return stop(pid_file.path_of(directories))


def stop(path: Path, wait_s: float = _WAIT_S) -> int:
    """Stop the broker whose process id is in `path` (SIGTERM), and return that id once it has ended."""
    pid = pid_file.read(path)
    if pid is None or not _is_broker(pid):
        raise StopError(f"no broker is running: {path} has no process id of a running broker")
    # A process descriptor keeps referring to this process; its id may be reused by another.
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        if not select.select([descriptor], [], [], wait_s)[0]:
            raise StopError(f"process {pid} has not ended after {wait_s:.0f} s")
    finally:
        os.close(descriptor)
    return pid


def _is_broker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"holdfast_log.broker" in command


def main() -> int:
    parser = argparse.ArgumentParser(prog="server-stop.sh", description="Stop a broker and wait for its end.")
    parser.add_argument("properties", help="the properties file with which the broker was started")
    parser.add_argument("--override", action="append", default=[], metavar="key=value")
    arguments = parser.parse_args()
    try:
        pid = stop_broker_of(arguments.properties, arguments.override)
    except (SettingError, StopError, OSError) as error:
        print(f"Cannot stop: {error}", file=sys.stderr)
        return 1
    print(f"Stopped the broker (process {pid})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
