"""Walks through the attacks of one client without a right, against a cluster that was started as a user does.

    scripts/cluster-start.sh -n 1 --directory DIRECTORY
    python -m tests.hostile.walk --port 9092 --directory DIRECTORY

Only plain sockets attack; every setting is the default. A neighbour produces a record and fetches it all the
while. Each line says what was sent, what came of it, and how long the neighbour waited. Status 1 if an attack
was not held.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.hostile.attack import memory_bytes
from tests.hostile.attacks import ATTACKS
from tests.hostile.attacks_on_state import STATE_ATTACKS
from tests.hostile.scene import TOPIC, NotHeld, create, scene_of

GROWTH_BYTES_MAX = 256 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack a cluster of this machine, and say what happened.")
    parser.add_argument("--port", type=int, required=True, help="of the first broker, on loopback")
    parser.add_argument(
        "--directory", type=Path, required=True, help="of the cluster, as cluster-start.sh has it"
    )
    parser.add_argument("--idle", type=int, default=11_000, help="connections that send nothing (11000)")
    parser.add_argument("--only", action="append", help="only these attacks, by the names of their functions")
    arguments = parser.parse_args()
    failed = 0
    with scene_of(arguments.port, arguments.directory.resolve(), arguments.idle) as scene:
        create(scene, TOPIC)
        for attack in (*ATTACKS, *STATE_ATTACKS):
            if arguments.only and attack.__name__ not in arguments.only:
                continue
            before, began_s = memory_bytes(scene.pid, "VmRSS"), time.monotonic()
            Path(f"/proc/{scene.pid}/clear_refs").write_text("5")
            try:
                verdict, told = "held", attack(scene)
            except (NotHeld, OSError, AssertionError) as error:
                verdict, told = "NOT HELD", f"{type(error).__name__}: {error}"
            pace = scene.neighbour.pace(began_s, time.monotonic())
            grown = memory_bytes(scene.pid, "VmHWM") - before
            if grown > GROWTH_BYTES_MAX or pace.failed:
                verdict = "NOT HELD"
            failed += verdict != "held"
            what = " ".join((attack.__doc__ or "").split(". ")[0].rstrip(".").split())
            print(
                f"{verdict}: {what}: {told}. Memory grew by {max(0, grown) >> 20} MiB; the neighbour's "
                f"{pace.rounds} rounds: {pace.failed} failed, p50 {pace.p50_ms:.1f}, "
                f"p99 {pace.p99_ms:.1f} ms",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
