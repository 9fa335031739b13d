"""Ends a child process when its parent ends, by the kernel: also when the parent is killed."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """For `preexec_fn`: the kernel sends the child signal `number` when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
