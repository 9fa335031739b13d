"""What modules print with --help: each in a process of its own, forked from one that has imported most of
what they need.

Importing takes nearly all of the processor time of a program that only prints its usage, and there are fifty.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

_IMPORTED = (
    "holdfast_log.clients.admin",
    "holdfast_log.clients.consumer",
    "holdfast_log.clients.producer",
    "holdfast_log.clients.tools.command",
    "tests.usages",
)
"""None of them starts a thread, or chooses a reactor."""
_TIMEOUT_S = 300.0


def printed(module: str, arguments: Sequence[str], directory: Path) -> tuple[int | None, str, str]:
    """The exit status of `python -m module arguments…`, and what it prints to stdout and to stderr. These are
    kept in the directory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    paths = directory / "stdout", directory / "stderr"
    process = context.Process(target=_run, args=(module, list(arguments), *map(str, paths)))
    process.start()
    process.join(_TIMEOUT_S)
    if process.is_alive():
        process.kill()
        process.join()
    out, err = (path.read_text() if path.exists() else "" for path in paths)
    return process.exitcode, out, err


def _run(module: str, arguments: list[str], out: str, err: str) -> None:
    for descriptor, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
