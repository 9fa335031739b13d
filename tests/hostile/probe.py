"""Runs a broker and measures each turn of its reactor.

    python -m tests.hostile.probe FILE -m MODULE ARGUMENT…

A turn's own work is the processor time that the reactor's thread spent in it, so that other processes and
threads do not count. The results are in a memory-mapped file, which `Turns` reads from another process.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE_BYTES = 8192
_NUMBERS = struct.Struct("<Qd")
_TEXT_AT = 64
_SAMPLE_S = 0.01
_SAMPLED_S = 0.02
"""Time in seconds after which a turn counts as long, and what it does is noted."""
_FRAMES_SHOWN = 14


class Turns:
    """The turns of a probed broker, seen from another process."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_FILE_BYTES))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FILE_BYTES)

    @property
    def count(self) -> int:
        """Turns since the broker started."""
        count, _ = _NUMBERS.unpack_from(self._map)
        return int(count)

    @property
    def longest_ms(self) -> float:
        """Processor time in ms of the longest turn since the last reset."""
        _, longest_s = _NUMBERS.unpack_from(self._map)
        return float(longest_s) * 1000

    @property
    def where(self) -> str:
        """The innermost calls in the middle of the longest turn; empty if it was short."""
        return self._map[_TEXT_AT:].rstrip(b"\0").decode(errors="replace")

    def reset(self) -> None:
        self._map[8:] = bytes(_FILE_BYTES - 8)


class Probe:
    """Measures the reactor's turns, in its process."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FILE_BYTES)
        self._count = 0
        self._began_s = 0.0  # processor time of the reactor's thread
        self._thread = 0
        self._sample = b""
        self._is_stopped = False

    def stop(self) -> None:
        """Look no more at what the reactor's thread does. Walking the frames of a thread that runs may crash
        Python 3.11, so a process that goes on without the probe has to stop it."""
        self._is_stopped = True

    def watch(self, reactor: Any) -> None:
        """Measure from one look at the events to the next. The reactor's iterations are no measure: one goes
        on for as long as events come and nothing else is due."""
        reactor._poller = WatchedPoller(reactor._poller, self._end_turn)
        threading.Thread(target=self._watch_long_turns, daemon=True).start()

    def _end_turn(self) -> None:
        now_s = time.thread_time()
        spent_s, self._began_s = now_s - self._began_s, now_s
        self._count += 1
        if self._count == 1:
            self._thread = threading.get_ident()
            return
        _, longest_s = _NUMBERS.unpack_from(self._map)
        _NUMBERS.pack_into(self._map, 0, self._count, max(longest_s, spent_s))
        if spent_s > longest_s:
            self._map[_TEXT_AT:] = self._sample[: _FILE_BYTES - _TEXT_AT].ljust(_FILE_BYTES - _TEXT_AT, b"\0")
        self._sample = b""

    def _watch_long_turns(self) -> None:
        seen, since_s = 0, 0.0
        while not self._is_stopped:
            time.sleep(_SAMPLE_S)
            if self._count != seen:
                seen, since_s = self._count, time.monotonic()
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is None or time.monotonic() - since_s < _SAMPLED_S or frame.f_code.co_name == "poll":
                continue
            calls = traceback.extract_stack(frame)[-_FRAMES_SHOWN:]
            lines = [f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls]
            self._sample = "\n".join(lines).encode()


class WatchedPoller:
    """The reactor's epoll object, which tells when a turn ends: the reactor looks for events again."""

    def __init__(self, poller: Any, end_turn: Callable[[], None]) -> None:
        self._poller = poller
        self._end_turn = end_turn

    def poll(self, *how: Any) -> Any:
        self._end_turn()
        return self._poller.poll(*how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


def main() -> None:
    path, _, module, *arguments = sys.argv[1:]
    from twisted.internet import epollreactor

    epollreactor.install()
    # The broker's program installs it too, and there can be only one.
    epollreactor.install = lambda: None
    from holdfast_log.broker.process import process

    make_lean, probe = process.make_lean, Probe(path)

    def make_lean_and_watch(reactor: Any, *how: Any) -> None:
        make_lean(reactor, *how)
        probe.watch(reactor)

    process.make_lean = make_lean_and_watch
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
