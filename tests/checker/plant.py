"""Runs a broker in which a known bug can be put back, for tests of the checker:

    python -P -m tests.checker.plant DIRECTORY -m holdfast_log.broker server.properties

The bugs are those of the simulation (`tests.sim.mutants`). DIRECTORY belongs to a `tests.checker.planting`,
which names the bug in force in a file, and may change it while the broker runs. The broker itself knows
nothing of this.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

WANTED = "wanted"
"""File with the name of the bug that shall be in force; empty for none."""
_LOOK_S = 0.05


def planted_path(directory: Path, pid: int) -> Path:
    """The file in which the broker with this process id names the bug that is in force in it."""
    return directory / f"planted-{pid}"


class Planter:
    """Keeps the wanted bug in force in this process."""

    def __init__(self, directory: Path) -> None:
        self._wanted = directory / WANTED
        self._planted = planted_path(directory, os.getpid())
        self._in_force: str | None = None
        self._undo = ExitStack()

    def look(self) -> None:
        """Plant what is wanted now, and take back what was planted before."""
        wanted = self._wanted.read_text()
        if wanted == self._in_force:
            return
        self._undo.close()
        if wanted:
            # Imported only if there is something to plant, since it takes longer than a broker's start.
            from tests.sim.mutation import mutated
            from tests.sim.mutations import by_name

            self._undo.enter_context(mutated(by_name(wanted)))
        self._in_force = wanted
        self._planted.write_text(wanted)

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self.look()


def main() -> None:
    directory, flag, module, *rest = sys.argv[1:]
    assert flag == "-m", "usage: python -m tests.checker.plant DIRECTORY -m MODULE ARGUMENTS"
    planter = Planter(Path(directory))
    planter.look()
    threading.Thread(target=planter.run, name="planter", daemon=True).start()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
