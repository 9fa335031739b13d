"""A short take-over drill, and a check that its judge detects stale records."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster
from tests.takeovers.drill import Account, drill

COUNT = 20


def test_owners_resumed_after_a_takeover_append_nothing(cluster: Cluster) -> None:
    cluster.start()
    account = drill(cluster.bootstrap, COUNT)
    print(account)
    assert (account.takeovers, account.stale) == (COUNT, 0)
    assert account.tried >= COUNT and account.records > COUNT


@pytest.mark.parametrize(
    ("epochs", "stale"),
    [([1, 1, 1, 2, 2], 0), ([1, 1, 1, 2, 1], 1), ([1, 2, 1, 2, 2], 1), ([1, 1, 1, 1, 1], 2)],
)
def test_records_outside_their_owners_range_are_counted_as_stale(epochs: list[int], stale: int) -> None:
    account = Account(fences={1: 0, 2: 3})
    account.judge(list(enumerate(epochs)))
    assert account.stale == stale
