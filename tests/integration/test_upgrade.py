"""A running cluster is upgraded as docs/operating.md says, from an earlier version of this repository to the
present one and back, while clients write, read and own."""

from __future__ import annotations

import subprocess
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

from holdfast_log.clients.admin import NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.inter_broker import NEWEST
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.integration.operated import HOME, LIMIT_S, ORDERS, Operated, operating
from tests.integration.waiting import until

OLDEST = (HOME / "tests" / "integration" / "upgrade_from").read_text().strip()
"""The oldest commit from which an upgrade works."""
JOURNAL = "journal"
PAUSE_S = 0.02
SESSION_MS = 60_000
"""So long that the owner keeps the journal on a machine that stands still for a while."""
MESSAGES_MIN = 20
"""Messages that must have been written in each state of the cluster."""


def git(*arguments: str) -> bytes | None:
    """What git prints; None if it fails, as in a copy without history."""
    try:
        return subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def earlier_version() -> str:
    """The last tag of a version before the present commit, or else the commit that the file names."""
    tags = git("tag", "--list", "v[0-9]*", "--merged", "HEAD~1", "--sort=-creatordate") or b""
    return next(iter(tags.decode().split()), OLDEST)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A directory with the sources of an earlier version, whose compiled parts are not built: it runs without
    them."""
    version = earlier_version()
    archive = git("archive", version)
    if archive is None:
        pytest.skip(f"the history of this copy does not have {version}: git fetch --unshallow --tags")
    directory = tmp_path / "earlier"
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(directory, filter="fully_trusted")  # It has links between its own folders.
    return directory


class Load:
    """A producer, a group of consumers and an owner at work until they are stopped, each in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.written: list[bytes] = []
        self.owned: list[bytes] = []
        self.read: Counter[bytes] = Counter()
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._has_all = threading.Event()
        self._failures: list[BaseException] = []
        works = (self._write, self._own, self._read, self._read)
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def progress(self) -> None:
        """Wait until everybody has worked for a while in the present state of the cluster."""
        targets = [len(self.written), len(self.owned), self.read.total()]

        def has_passed() -> bool:
            assert not self._failures, self._failures
            present = [len(self.written), len(self.owned), self.read.total()]
            return all(a >= b + MESSAGES_MIN for a, b in zip(present, targets, strict=True))

        until(has_passed)

    def end(self) -> None:
        """Stop writing, read everything, and stop. Raises what has failed."""
        self._ended.set()
        self._threads[0].join()
        until(lambda: bool(self._failures) or self.read.keys() >= set(self.written))
        self.abandon()
        assert not self._failures, self._failures

    def abandon(self) -> None:
        """Stop everybody."""
        self._ended.set()
        self._has_all.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as failure:
            self._failures.append(failure)

    def _write(self) -> None:
        with Producer({"bootstrap.servers": self._bootstrap, "acks": "all"}) as producer:
            while not self._ended.wait(PAUSE_S):
                value = b"%d" % len(self.written)
                producer.send(Message(ORDERS, value=value, partition=len(self.written) % 4)).result()
                self.written.append(value)

    def _own(self) -> None:
        """Hold the journal all the time: an owner that lost it would be fenced, and fail."""
        properties = {"bootstrap.servers": self._bootstrap, "acks": "all"}
        mode = ProducerAccessMode.EXCLUSIVE
        with ExclusiveProducer(properties, JOURNAL, mode, session_timeout_ms=SESSION_MS) as owner:
            while not self._ended.wait(PAUSE_S):
                value = b"%d" % len(self.owned)
                owner.send(Message(JOURNAL, value=value)).result()
                self.owned.append(value)

    def _read(self) -> None:
        properties = {
            "bootstrap.servers": self._bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
        }  # fmt: skip
        with Consumer(properties) as consumer:
            consumer.add_topic(ORDERS)
            while not self._has_all.is_set():
                self.read.update(bytes(record.value or b"") for record in consumer.poll(200))
                with suppress(CommitFailedError):  # The group is rebalanced: others read these again.
                    consumer.commit()


@pytest.fixture
def upgraded(tmp_path: Path, earlier: Path) -> Iterator[Operated]:
    directory = tmp_path / "operated"
    directory.mkdir()
    with operating(directory, earlier) as cluster:
        yield cluster


@pytest.fixture
def load(upgraded: Operated) -> Iterator[Load]:
    """Work in a running cluster of the earlier version."""
    upgraded.start()
    with upgraded.admin() as admin:
        admin.create_topics([NewTopic(ORDERS, 4, 3), NewTopic(JOURNAL, 1, 3)])
    load = Load(upgraded.brokers)
    try:
        load.progress()
        yield load
    finally:
        load.abandon()


def upgrade(cluster: Operated, load: Load) -> None:
    """Go from the earlier version to the present one, broker by broker."""
    cluster.follow("Upgrade", 0)
    cluster.newer = HOME
    cluster.follow("Rolling restart")
    assert cluster.follow("Upgrade", 1).count("(id: ") == 3
    assert cluster.follow("Upgrade", 2).count("inter.broker.protocol.version=1 ") == 3
    load.progress()


def go_back(cluster: Operated, load: Load) -> None:
    """Go from the present version to the earlier one, broker by broker, and end the work: nothing is lost or
    written twice."""
    cluster.newer = None
    cluster.follow("Rolling restart")
    load.progress()
    load.end()
    assert load.read.keys() == set(load.written)
    assert cluster.ends() == len(load.written), "no record is lost or written twice"
    assert cluster.ends(JOURNAL) == len(load.owned)


@pytest.mark.timeout(LIMIT_S)
def test_a_cluster_under_load_is_upgraded_and_goes_back(upgraded: Operated, load: Load) -> None:
    upgrade(upgraded, load)
    go_back(upgraded, load)


@pytest.mark.campaign
@pytest.mark.timeout(LIMIT_S)
def test_a_cluster_under_load_that_was_fully_upgraded_goes_back(upgraded: Operated, load: Load) -> None:
    """Two more rolling restarts: the protocol between brokers is raised and lowered in between."""
    upgrade(upgraded, load)
    upgraded.follow("Upgrade", 3)
    upgraded.follow("Rolling restart")
    raised = f"inter.broker.protocol.version={NEWEST} "
    assert upgraded.follow("Upgrade", 2).count(raised) == 3
    load.progress()
    upgraded.follow("Upgrade", 0)
    upgraded.follow("Rolling restart")
    assert upgraded.follow("Upgrade", 2).count("inter.broker.protocol.version=1 ") == 3
    load.progress()
    go_back(upgraded, load)
