"""The version of transactions that a cluster has decided on, and how its epoch rises."""

from __future__ import annotations

from dataclasses import replace

from holdfast_log.coordinator.controller.effects import ControllerEffect, RecordBrokers, SendToBrokers
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.brokers import TRANSACTION_VERSION
from holdfast_log.coordinator.znodes.controller import FeatureRecord, FinalizedFeatures
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.coordinator.controller.machine import Machine, Store, sent_to
from tests.coordinator.members import broker_info


def saying(store: Store, broker_id: int, version: int | None) -> LiveBroker:
    """A broker that has just started, and goes up to this version; None: it is of an earlier Holdfast."""
    info = broker_info(broker_id)
    own = {} if version is None else {TRANSACTION_VERSION: (0, version)}
    return LiveBroker(replace(info, features={**info.features, **own}), store.new_epoch())


def cluster(*versions: int | None, store: Store | None = None, epoch: int = 1) -> Machine:
    store = store or Store()
    brokers = {number: saying(store, number, version) for number, version in enumerate(versions, 1)}
    return Machine(1, store=store, epoch=epoch, brokers=brokers)


def restart(machine: Machine, broker_id: int, version: int) -> list[ControllerEffect]:
    effects = machine.lose(broker_id)
    return effects + machine.come(saying(machine.store, broker_id, version))


def told(effects: list[ControllerEffect], broker_id: int) -> list[tuple[int, int]]:
    """Epoch and version in each UpdateMetadata that a broker gets."""
    requests = sent_to(effects, broker_id, UpdateMetadataRequest)
    return [(request.finalized_features_epoch, request.transaction_version) for request in requests]


def test_the_first_decision_has_epoch_1_and_reaches_every_broker() -> None:
    machine = cluster(1, 1, 1)
    assert machine.store.features.finalized == FinalizedFeatures(1, 1)
    assert [told(machine.effects, each) for each in (1, 2, 3)] == [[(1, 1)]] * 3


def test_the_version_rises_with_the_last_broker_and_all_learn_of_it_in_a_later_epoch() -> None:
    machine = cluster(1, 1, 1)
    machine.create("t", (1, 2, 3))
    for broker_id in (1, 2):
        effects = restart(machine, broker_id, 2)
        assert machine.store.features.finalized == FinalizedFeatures(1, 1)
        assert told(effects, broker_id) == [(1, 1)]
    effects = restart(machine, 3, 2)
    assert machine.store.features.finalized == FinalizedFeatures(2, 2)
    assert [told(effects, each)[-1] for each in (1, 2, 3)] == [(2, 2)] * 3


def test_the_version_falls_with_the_first_broker_that_says_less() -> None:
    machine = cluster(2, 2, 2)
    effects = restart(machine, 2, 1)
    assert machine.store.features.finalized == FinalizedFeatures(1, 2)
    assert [told(effects, each)[-1] for each in (1, 2, 3)] == [(2, 1)] * 3
    restart(machine, 2, 2)
    assert machine.store.features.finalized == FinalizedFeatures(2, 3)


def test_brokers_are_told_only_what_is_recorded() -> None:
    machine = cluster(1, 1)
    effects = restart(machine, 1, 2) + restart(machine, 2, 2)
    decided = next(
        number
        for number, effect in enumerate(effects)
        if isinstance(effect, RecordBrokers) and effect.features.finalized == FinalizedFeatures(2, 2)
    )
    before = [effect for effect in effects[:decided] if isinstance(effect, SendToBrokers)]
    assert before
    for broker_id in (1, 2):
        assert (2, 2) not in told([*before], broker_id)


def test_a_broker_that_is_away_counts_while_it_has_replicas() -> None:
    machine = cluster(2, 2, 1)
    machine.create("t", (3, 1))
    machine.lose(3)
    assert machine.store.features.finalized == FinalizedFeatures(1, 1)
    effects = machine.come(saying(machine.store, 3, 2))
    assert machine.store.features.finalized == FinalizedFeatures(2, 2)
    assert told(effects, 1)[-1] == (2, 2)


def test_a_broker_that_has_gone_without_replicas_does_not_count() -> None:
    machine = cluster(2, 2, 1)
    machine.create("t", (2, 1))
    effects = machine.lose(3)
    assert machine.store.features.finalized == FinalizedFeatures(2, 2)
    assert [told(effects, each)[-1] for each in (1, 2)] == [(2, 2)] * 2


def test_the_next_controller_goes_on_with_the_epoch() -> None:
    old = cluster(2, 2, 1)
    old.create("t", (3, 1))
    new = Machine(2, store=old.store, epoch=2, brokers=old.brokers)
    assert told(new.effects, 3) == [(1, 1)]
    restart(new, 3, 2)
    later = cluster(2, 1, store=new.store, epoch=3)
    assert later.store.features.finalized == FinalizedFeatures(1, 3)


def test_brokers_of_an_earlier_version_do_not_count() -> None:
    machine = cluster(2, None)
    assert machine.store.features == FeatureRecord({1: 2}, FinalizedFeatures(2, 1))
    assert cluster(None).store.features == FeatureRecord()


def test_what_an_earlier_version_recorded_is_completed() -> None:
    """Its record has the starts of the same processes, and nothing about features."""
    old = cluster(2, 2)
    old.store.features = FeatureRecord()
    new = Machine(1, store=old.store, epoch=2, brokers=old.brokers)
    assert new.store.features.finalized == FinalizedFeatures(2, 1)
