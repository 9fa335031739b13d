"""Take-overs by stopping the owner: python -m tests.takeovers.drill --count 200.

Two processes compete for exclusive access to one topic; the owner writes without pause. The drill stops it
(SIGSTOP) for longer than its session, so that the other is promoted and writes, and then resumes it
(SIGCONT). At the end the drill reads the log: each record holds its writer's epoch, and none may stand at or
behind the fence offset of a later epoch."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import click

from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.forked_brokers import ForkedBroker

HOME = Path(__file__).parents[2]
TOPIC = "contended"
PLACE = TopicPartition(TOPIC, 0)
NAMES = ("anna", "ben")
SESSION_MS = 300
STEP_TIMEOUT_S = 240.0
POLL_MS = 10_000


class DrillError(Exception):
    """The drill could not be completed."""


@dataclass(slots=True)
class Account:
    """Counts of one drill. `stale` counts records outside the offsets in which their owner may write."""

    takeovers: int = 0
    tried: int = 0
    refused: int = 0
    records: int = 0
    stale: int = 0
    fences: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"take-overs {self.takeovers}, appends tried by the fenced {self.tried}, "
            f"stale appends {self.stale}, records {self.records}"
        )

    @property
    def holds(self) -> bool:
        return self.stale == 0 and self.records > 0

    def judge(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Count the stale records among `epochs`: the (offset, writer's epoch) of each record of the log."""
        ends: dict[int, int] = {}
        end = sys.maxsize
        for epoch, fence in sorted(self.fences.items(), reverse=True):
            ends[epoch] = end
            end = min(end, fence)
        self.records = len(epochs)
        self.stale = sum(not self.fences[epoch] <= offset < ends[epoch] for offset, epoch in epochs)


class Owners:
    """The two processes, and the lines that they print."""

    def __init__(self, bootstrap: str, session_ms: int) -> None:
        self.account = Account()
        self._said: queue.Queue[tuple[str, list[str]]] = queue.Queue()
        self._last_word: dict[str, str] = {}
        self._owned: dict[str, int] = {}
        """The last epoch in which each process owned the topic."""
        self._fenced: set[int] = set()
        self._processes = {
            name: subprocess.Popen(
                [sys.executable, "-m", "tests.takeovers.owner", bootstrap, TOPIC, name, str(session_ms)],
                cwd=HOME,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=die_with_parent,
            )
            for name in NAMES
        }
        for name in NAMES:
            threading.Thread(target=self._listen, args=(name,), daemon=True).start()

    def _listen(self, name: str) -> None:
        stdout = self._processes[name].stdout
        assert stdout is not None
        for line in stdout:
            self._said.put((name, line.split()))
        self._said.put((name, ["ended"]))

    def take_over(self, count: int) -> None:
        """Have the topic change owners `count` times.

        On a busy machine an owner's session may expire without SIGSTOP.
        """
        owner = self._await("owns", NAMES)
        for _ in range(count):
            other = NAMES[NAMES[0] == owner]
            epoch = self._owned[owner]
            self._signal(owner, signal.SIGSTOP)
            self._await("owns", (other,))
            self.account.takeovers += 1
            self._signal(owner, signal.SIGCONT)
            self._await_fenced(owner, epoch)
            owner = max(self._owned, key=self._owned.__getitem__)

    def _await_fenced(self, woken: str, epoch: int) -> None:
        """Wait until process `woken` has been fenced, and then waits for the topic again or owns it."""
        while epoch not in self._fenced or self._last_word[woken] == "fenced":
            self._hear()

    def _await(self, what: str, names: Sequence[str]) -> str:
        while True:
            name, heard = self._hear()
            if heard == what and name in names:
                return name

    def _hear(self) -> tuple[str, str]:
        try:
            name, words = self._said.get(timeout=STEP_TIMEOUT_S)
        except queue.Empty:
            raise DrillError(f"no owner reported anything for {STEP_TIMEOUT_S:.0f} s") from None
        match words:
            case ["owns", epoch, fence]:
                self.account.fences[int(epoch)] = int(fence)
                self._owned[name] = int(epoch)
            case ["fenced", epoch, tried, refused]:
                self._fenced.add(int(epoch))
                self.account.tried += int(tried)
                self.account.refused += int(refused)
            case ["ended"]:
                raise DrillError(f"owner {name} exited unexpectedly")
        self._last_word[name] = words[0]
        return name, words[0]

    def _signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for _ in NAMES:
            with contextlib.suppress(DrillError):
                while True:  # Lines printed before the kill count.
                    self._hear()


def drill(bootstrap: str, count: int, *, replicas: int = 1, session_ms: int = SESSION_MS) -> Account:
    """Run `count` take-overs on a cluster, and judge the log. Raises DrillError."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, replicas, configs={"single.writer": "required"})])
    with Owners(bootstrap, session_ms) as owners:
        owners.take_over(count)
    owners.account.judge(_epochs(bootstrap))
    return owners.account


def _epochs(bootstrap: str) -> list[tuple[int, int]]:
    """The (offset, writer's epoch) of every record."""
    found: list[tuple[int, int]] = []
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(*PLACE)
        end = consumer.end_offsets([PLACE])[PLACE]
        while consumer.position(PLACE) < end:
            found += [(record.offset, int(record.value.split()[1])) for record in consumer.poll(POLL_MS)]
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--count", default=200, show_default=True, help="Number of take-overs.")
@click.option("--brokers", default=1, show_default=True, help="Brokers, each with a replica of the topic.")
@click.option(
    "--session-timeout-ms",
    default=SESSION_MS,
    show_default=True,
    help="Session timeout of each owner, in ms.",
)
def main(count: int, brokers: int, session_timeout_ms: int) -> None:
    """Have two processes take a topic from each other: the owner is stopped for longer than its session, and
    after it resumes none of its writes may enter the log. Prints a line of counts at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="takeovers-") as directory,
        LocalCluster(directory, brokers=brokers, broker_type=ForkedBroker) as cluster,
    ):
        account = drill(cluster.bootstrap, count, replicas=brokers, session_ms=session_timeout_ms)
    print(account)
    sys.exit(0 if account.holds else 1)


if __name__ == "__main__":
    main(prog_name="takeover-drill.sh")
