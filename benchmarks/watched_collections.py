"""Runs a Python module and records its garbage collections: python watched_collections.py FILE -m MODULE …

Each collection becomes a line of FILE: when it began by the system's monotonic clock, in seconds, and how
many milliseconds it took. This file imports nothing of the project, so that it also runs other checkouts.
"""

from __future__ import annotations

import gc
import runpy
import sys
import time


def _watch(path: str) -> None:
    output = open(path, "a", buffering=1)  # noqa: SIM115 - it stays open for the life of the process
    began = 0.0

    def watch(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.monotonic()
        else:
            output.write(f"{began:.6f} {(time.monotonic() - began) * 1000:.3f}\n")

    gc.callbacks.append(watch)


if __name__ == "__main__":
    file, _, module, *arguments = sys.argv[1:]
    _watch(file)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
