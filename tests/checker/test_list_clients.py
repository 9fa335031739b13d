"""Clients of lists on a cluster in memory: they fence each other, and their history is judged."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import pytest

from holdfast_log.checker.calls import Outcome, StoredList
from holdfast_log.checker.clients import lists
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.checker.clients.lists import FollowedLists, ListReader, ListWriter, list_name
from holdfast_log.checker.recorder import Recorder
from holdfast_log.checker.verdict import judge
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import BrokerError, ProducerFencedError
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing import FakeCluster

PLACES = [TopicPartition("check-lists", number) for number in range(3)]
STEPS = 100
_TICK_S = 0.02


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> CheckSettings:
    cluster = FakeCluster(brokers=3)
    cluster.create_topic("check-lists", partitions=3)
    monkeypatch.setattr(lists, "Producer", cluster.producer)
    monkeypatch.setattr(lists, "Consumer", cluster.consumer)
    monkeypatch.setattr(lists, "random", random.Random(1))
    ticks = count()
    return CheckSettings(cluster.bootstrap, Recorder(clock=lambda: next(ticks) * _TICK_S), "check")


def test_writers_fence_each_other_and_their_transactions_have_an_order(settings: CheckSettings) -> None:
    writers = [ListWriter(f"writer-{number}", settings, "lists", PLACES) for number in range(2)]
    reader = ListReader("reader", settings, PLACES)
    errors: Counter[type[Exception]] = Counter()
    for _ in range(STEPS):
        for client in (*writers, reader):
            try:
                client.step()
            except (ClientError, BrokerError) as error:
                errors[type(error)] += 1
    for client in (*writers, reader):
        client.close()
    stored = FollowedLists(settings, PLACES)
    ends = stored.stable_ends()
    stored.read_to(ends)
    history = settings.recorder.history
    history.lists += [StoredList(list_name(place), stored.elements(place, ends[place])) for place in PLACES]
    stored.close()

    verdict = judge(history)
    assert verdict.holds, (verdict.violations[:5], verdict.missing)
    outcomes = Counter((call.client, call.outcome) for call in history.transactions)
    for writer in writers:
        assert outcomes[writer.name, Outcome.DONE] > 10 and outcomes[writer.name, Outcome.REFUSED]
    assert errors[ProducerFencedError] > 1
    assert set(errors) == {ProducerFencedError}
    assert any(read.count > 20 for call in history.transactions for read in call.reads)
