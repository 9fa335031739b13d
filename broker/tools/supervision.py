"""Watches a local cluster: a broker that ends is reported and can be started again while the others go on.

`cluster.json` in the cluster's directory says which brokers run. Another process asks for the start of a
broker with a file in the broker's directory (`ask_to_start`), since only the cluster's own process may start
it: brokers end with the process that has started them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast_log.broker.process.supervisor import how_it_ended
from holdfast_log.broker.tools.broker_process import BackgroundBroker

STATE_FILE = "cluster.json"
_REQUEST = "start-requested"


@dataclass(frozen=True, slots=True)
class LocalBroker:
    """A broker of a local cluster. `pid` is None while it does not run; `ended` then says how it ended.
    `starts` counts how often it was started again."""

    id: int
    address: str
    pid: int | None
    ended: str
    log: str
    starts: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a local cluster's process says of its brokers, and its addresses for clients and ZooKeeper's."""

    bootstrap: str
    zookeeper: str
    brokers: tuple[LocalBroker, ...]


def read_state(directory: Path) -> ClusterState | None:
    """The state of the cluster in a directory; None if none has been written."""
    try:
        found = json.loads((directory / STATE_FILE).read_text())
    except (OSError, ValueError):
        return None
    brokers = tuple(LocalBroker(**row) for row in found["brokers"])
    return ClusterState(found["bootstrap"], found["zookeeper"], brokers)


def ask_to_start(directory: Path, broker_id: int) -> None:
    """Ask the process of the cluster in `directory` to start a broker that has ended."""
    (_broker_directory(directory, broker_id) / _REQUEST).touch()


def is_asked_to_start(directory: Path, broker_id: int) -> bool:
    """Whether the cluster's process has yet to act on `ask_to_start`."""
    return (_broker_directory(directory, broker_id) / _REQUEST).exists()


def _broker_directory(directory: Path, broker_id: int) -> Path:
    return directory / f"broker-{broker_id}"


class Supervision:
    """Reports brokers that have ended, by `say`, and starts those that are asked for.

    Call `look` regularly. The state file in `directory` is written when something has changed. `bootstrap`
    and `zookeeper` are the cluster's addresses.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        zookeeper: str,
        brokers: Sequence[BackgroundBroker],
        say: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper
        self._brokers = brokers
        self._say = say
        self._state: ClusterState | None = None
        self._ended: dict[int, str] = {}
        self._starts: dict[int, int] = {}

    def look(self) -> None:
        """Start brokers that are asked for, report those that have ended, and write the state.

        The request for a start is removed after the state that shows the start has been written.
        """
        asked = [broker for broker in self._brokers if (broker.directory / _REQUEST).exists()]
        for broker in asked:
            if not broker.running:
                self._start(broker)
        for broker in self._brokers:
            if not broker.running and broker.broker_id not in self._ended:
                self._report(broker)
        state = self._current()
        if state != self._state:
            self._state = state
            self._write(state)
        for broker in asked:
            (broker.directory / _REQUEST).unlink(missing_ok=True)

    def _start(self, broker: BackgroundBroker) -> None:
        broker.start()
        self._starts[broker.broker_id] = self._starts.get(broker.broker_id, 0) + 1
        self._ended.pop(broker.broker_id, None)
        self._say(f"Broker {broker.broker_id} has been started again (process {broker.pid}).")

    def _report(self, broker: BackgroundBroker) -> None:
        assert broker.exit_status is not None, "the broker has ended"
        ended = how_it_ended(broker.exit_status)
        self._ended[broker.broker_id] = ended
        self._say(
            f"Broker {broker.broker_id} has ended ({ended}); the others go on. Its log is {broker.log_path}. "
            f"cluster-start.sh --broker {broker.broker_id} starts it again."
        )

    def _current(self) -> ClusterState:
        brokers = tuple(
            LocalBroker(
                broker.broker_id,
                broker.address,
                broker.pid if broker.running else None,
                self._ended.get(broker.broker_id, ""),
                str(broker.log_path),
                self._starts.get(broker.broker_id, 0),
            )
            for broker in self._brokers
        )
        return ClusterState(self._bootstrap, self._zookeeper, brokers)

    def _write(self, state: ClusterState) -> None:
        """Replace the file in one step: it is read at any time."""
        path = self._directory / STATE_FILE
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(state), indent=2) + "\n")
        os.replace(new, path)
