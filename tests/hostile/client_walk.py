"""Walks our clients through the lies of a broker, and says what each client did.

    python -m tests.hostile.client_walk
    python -m tests.hostile.client_walk --lie throttled --client consumer --docs docs

Each client is a process with ordinary settings and short deadlines (tests/hostile/lied_to.py), at a broker
that tells one lie in all its answers (tests/hostile/lying_broker.py). It has to end each call by its
deadline, with a result or an error of its own; it may ask only so often, grow by so much, and use so much
processor time. Status 1 if a client did not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.peer_report import insert
from tests.hostile.lied_to import KINDS, Told
from tests.hostile.lying_broker import HOST, LIES, Lie, LyingBroker
from tests.integration.programs import HOME

ASKED_MAX = 1_000
"""Requests and connections of one client: more than it may send without pauses."""
GROWTH_BYTES_MAX = 320 << 20
"""One batch may have `batch.max.bytes` once it is decompressed: 256 MiB."""
WORKED_S_MAX = 10.0
"""Processor time of a client, its start included."""
LATE_S_MAX = 2.5
"""How long a call may take beyond its deadline: an attempt that was begun."""
ENDS_S = 180.0
"""A client that has not ended by then waits for ever."""
MARK = "<!-- Written by scripts/hostile-broker-walk.sh:"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one client did at a broker with one lie."""

    lie: str
    client: str
    asked: int
    told: Told | None
    """None if the client did not end, or ended by an error that is not its own."""
    why: str = ""

    def over(self, late_s_max: float) -> list[str]:
        """What is beyond a limit."""
        told = self.told
        if told is None:
            return [self.why]
        wrong = []
        if told.late_s > late_s_max:
            wrong.append(f"a call ended {told.late_s:.1f} s late")
        if told.grown_bytes > GROWTH_BYTES_MAX:
            wrong.append(f"it grew by {told.grown_bytes >> 20} MiB")
        if told.worked_s > WORKED_S_MAX:
            wrong.append(f"it worked for {told.worked_s:.1f} s")
        if self.asked > ASKED_MAX:
            wrong.append(f"it asked {self.asked:,} times")
        return wrong

    def row(self) -> str:
        told = self.told
        if told is None:
            return f"| {self.lie} | {self.client} | **{self.why}** | {self.asked} | | | |"
        ended = ", ".join(f"{count} {name}" for name, count in sorted(told.ended.items()))
        return (
            f"| {self.lie} | {self.client} | {ended} | {self.asked} | {max(0.0, told.late_s):.1f} | "
            f"{told.grown_bytes >> 20} | {told.worked_s:.1f} |"
        )


@contextmanager
def lying(lie: Lie) -> Iterator[LyingBroker]:
    """A broker with a lie, on a thread of its own."""
    broker, stopped = LyingBroker(lie), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(broker.serve, stopped.is_set)
        try:
            yield broker
        finally:
            stopped.set()
            serving.result(60)  # Raises what has ended the broker, at which a client proves nothing.
            broker.close()


def outcome(lie: Lie, client: str, patience: int = 1) -> Outcome:
    """Have one client meet one lie. Its deadlines are `patience` times as long as the ordinary ones."""
    name = (lie.__doc__ or "").split("\n")[0].rstrip(".")
    with lying(lie) as broker:
        address = f"{HOST}:{broker.liar.port}"
        command = [sys.executable, "-m", "tests.hostile.lied_to", client, address, str(patience)]
        try:
            ended = subprocess.run(
                command, cwd=HOME, capture_output=True, text=True, timeout=ENDS_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(name, client, broker.asked, None, f"it has not ended after {ENDS_S:.0f} s")
        if ended.returncode:
            last = ended.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
            return Outcome(name, client, broker.asked, None, last[0])
        return Outcome(name, client, broker.asked, Told(**json.loads(ended.stdout.splitlines()[-1])))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="hostile-broker-walk.sh",
        description="Run our clients at a broker that lies in every answer, and say what each of them did. "
        "Status 1 if one did not end in time, grew too much, or asked without pauses.",
    )
    names: dict[str, Lie] = {lie.__name__: lie for lie in LIES}
    parser.add_argument("--lie", action="append", choices=names, help="only these lies")
    parser.add_argument("--client", action="append", choices=KINDS, help="only these clients")
    parser.add_argument(
        "--late-s", type=float, default=LATE_S_MAX,
        help=f"how long a call may take beyond its deadline, in s ({LATE_S_MAX}); more on a busy machine",
    )  # fmt: skip
    parser.add_argument("--at-once", type=int, default=3, help="clients that run at the same time (3)")
    parser.add_argument("--docs", type=Path, help="write the table into hostile-clients.md of this directory")
    arguments = parser.parse_args()
    rows, failed = list(HEAD), 0
    note("\n".join(HEAD))
    with ThreadPoolExecutor(arguments.at_once) as threads:
        pairs = list(product(arguments.lie or names, arguments.client or KINDS))
        for (name, client), found in zip(
            pairs, threads.map(lambda pair: outcome(names[pair[0]], pair[1]), pairs), strict=True
        ):
            rows.append(found.row())
            note(rows[-1])
            for text in found.over(arguments.late_s):
                failed += 1
                note(f"OVER {name}, {client}: {text}")
    if arguments.docs:
        section = "\n\n".join((f"{MARK} begin -->", "\n".join(rows), f"{MARK} end -->"))
        insert(arguments.docs / "hostile-clients.md", section)
    return 1 if failed else 0


def note(text: str) -> None:
    """Tell the user what happens."""
    print(text, flush=True)


HEAD = (
    "| Lie of the broker | Client | How its calls ended | Requests and connections | Late by at most, s | "
    "Grew by, MiB | Processor time, s |",
    "| --- | --- | --- | ---: | ---: | ---: | ---: |",
)


if __name__ == "__main__":
    sys.exit(main())
