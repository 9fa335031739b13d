"""A streaming query holds its partitions for one run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from holdfast_log.clients.fence import OwnerFence
from holdfast_log.pipeline.reader_leases import ReaderGroupError, ReaderLeases
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

ZERO, ONE, TWO = (TopicPartition("flights", number) for number in range(3))


@dataclass
class FakeLease:
    partitions: Collection[TopicPartition]
    error: Exception | None
    is_held: bool = False

    def claim(self) -> None:
        if self.error is not None:
            raise self.error
        self.is_held = True

    def fence(self) -> OwnerFence:
        return OwnerFence(dict.fromkeys(self.partitions, 7), b"secret")

    def close(self) -> None:
        self.is_held = False


@dataclass
class Cluster:
    made: list[FakeLease]
    error: Exception | None = None

    def lease(self, partitions: Collection[TopicPartition]) -> FakeLease:
        self.made.append(FakeLease(partitions, self.error))
        return self.made[-1]


def test_only_partitions_that_are_new_are_claimed_and_all_are_released() -> None:
    cluster = Cluster([])
    leases = ReaderLeases("g", cluster.lease)

    first = leases.fences([ONE, ZERO])
    second = leases.fences([ONE, TWO])

    assert [list(lease.partitions) for lease in cluster.made] == [[ZERO, ONE], [TWO]]
    assert first[ONE].token(ONE) == 7
    assert set(second) == {ONE, TWO}
    assert all(lease.is_held for lease in cluster.made)
    leases.close()
    assert not any(lease.is_held for lease in cluster.made)


def test_a_run_whose_partitions_another_one_reads_is_refused_and_claims_nothing() -> None:
    cluster = Cluster([], error_for(ErrorCode.RESOURCE_OWNED, "owned by the first run"))
    leases = ReaderLeases("nightly", cluster.lease)

    with pytest.raises(ReaderGroupError, match=r"another run reads flights-0 .*nightly.*the first run"):
        leases.fences([ZERO])
    cluster.error = None

    assert set(leases.fences([ZERO])) == {ZERO}
