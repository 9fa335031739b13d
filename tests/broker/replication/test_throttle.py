"""Leaders and followers limit the rate of replicas that catch up, and never that of replicas in sync."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.replication.throttle import UNLIMITED, Throttle
from holdfast_log.clients.settings import SettingError
from tests.broker.replication.test_replica_sessions import FOLLOWER, LEADER, Pair
from tests.broker.world import produce_request
from tests.models.batches import batch

RATE = 1000
RECORDS, RECORD_BYTES = 100, 1000
LIMITS = "side", ["leader", "follower"]


class Catching(Pair):
    """Broker 2 has two empty partitions to fill. Broker 1 counts it as in sync with the second."""

    def __init__(self, directory: Path, side: str, names: tuple[str, ...]) -> None:
        super().__init__(directory, partitions=2)
        self.world.assign("t", 0, replicas=(LEADER, FOLLOWER), isr=(LEADER,), partition_epoch=1)
        for _ in range(RECORDS):
            for index in (0, 1):
                self.world.client().call(produce_request("t", batch(bytes(RECORD_BYTES)), index, acks=1))
        for copy in self.copies:
            log = self.world.replicas.partition("t", copy.index).log
            log.settings = dataclasses.replace(log.settings, leader_replication_throttled_replicas=names)
            copy.log.settings = dataclasses.replace(
                copy.log.settings, follower_replication_throttled_replicas=names
            )
        self.throttle: Throttle = self.world.replicas.throttle if side == "leader" else self.fetcher._throttle
        # Each response carries only a small part of the log.
        self.fetcher._limits = dataclasses.replace(self.fetcher._limits, partition_bytes_max=2000)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 10)):
            for _ in range(5):
                self.send()
                self.receive()
            self.world.clock.advance(0.1)

    def has(self, index: int) -> int:
        """Bytes of record values in the follower's log of a partition."""
        return self.copies[index].log.log_end_offset * RECORD_BYTES


@pytest.mark.parametrize(*LIMITS)
def test_a_replica_that_catches_up_stays_within_the_rate(tmp_path: Path, side: str) -> None:
    pair = Catching(tmp_path, side, ("*",))
    pair.throttle.set_rate(RATE)
    pair.run(20)
    # One burst fills the measuring windows; after it the rate applies.
    assert 15 * RATE <= pair.has(0) <= 40 * RATE
    before = pair.has(0)
    pair.run(20)
    assert 10 * RATE <= pair.has(0) - before <= 30 * RATE


@pytest.mark.parametrize(*LIMITS)
def test_a_removed_rate_throttles_no_replica(tmp_path: Path, side: str) -> None:
    pair = Catching(tmp_path, side, ("*",))
    pair.throttle.set_rate(0)
    pair.run(5)
    assert pair.has(0) <= 10_000
    pair.throttle.set_rate(UNLIMITED)
    pair.run(10)
    assert pair.has(0) == RECORDS * RECORD_BYTES


@pytest.mark.parametrize(*LIMITS)
@pytest.mark.parametrize("names", [(), ("1:1", "1:2"), ("0:3",)])
def test_replicas_that_are_not_listed_are_not_throttled(
    tmp_path: Path, side: str, names: tuple[str, ...]
) -> None:
    pair = Catching(tmp_path, side, names)
    pair.throttle.set_rate(0)
    pair.run(10)
    assert pair.has(0) == RECORDS * RECORD_BYTES


def test_a_replica_in_sync_is_never_throttled(tmp_path: Path) -> None:
    pair = Catching(tmp_path, "leader", ("*",))
    pair.throttle.set_rate(0)
    pair.run(10)
    assert (pair.has(0) <= 10_000, pair.has(1)) == (True, RECORDS * RECORD_BYTES)


def test_a_throttle_covers_only_the_partitions_listed_for_its_broker() -> None:
    log = type("Log", (), {"settings": LogSettings(leader_replication_throttled_replicas=("0:1", "1:2"))})
    partitions = [type("P", (), {"index": index, "log": log}) for index in (0, 1)]
    throttle = Throttle(1, lambda settings: settings.leader_replication_throttled_replicas)
    assert not any(throttle.covers(each) for each in partitions), "no rate is set"
    throttle.set_rate(5)
    assert [throttle.covers(each) for each in partitions] == [True, False]


@pytest.mark.parametrize("value", ["0", "0:1,x", "*,0:1", "-1:0"])
def test_an_invalid_list_of_replicas_is_refused(value: str) -> None:
    with pytest.raises(SettingError, match="partition:broker"):
        LogSettings.of({"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize("value", ["", "*", "0:1,12:3"])
def test_a_valid_list_of_replicas_is_accepted(value: str) -> None:
    LogSettings.of({"follower.replication.throttled.replicas": value})
