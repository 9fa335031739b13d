"""Owner ids prove nothing: an owner proves by its secret that a claim, a resume or a release is its own."""

from __future__ import annotations

import json

import pytest

from holdfast_log.coordinator.ownership.records import PartitionKey, ResourceKey
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.broker.ownership.machine import NAME, P0, SESSION_MS, Client, Machine

STRANGER = b"drawn by a stranger"


def strangers(machine: Machine) -> list[Client]:
    """Clients that name the owner id of another: with a secret of their own, and with none."""
    return [machine.client("anna", secret=secret) for secret in (STRANGER, b"")]


def known_to(stranger: Client, owner: Client, key: ResourceKey) -> Client:
    """The stranger, who has learnt the incarnation of the owner's grant."""
    stranger.incarnations[key] = owner.incarnations[key]
    return stranger


@pytest.mark.parametrize("key", [P0, NAME])
def test_a_stranger_that_names_the_owner_id_does_not_resume(key: ResourceKey) -> None:
    machine = Machine()
    anna = machine.client("anna")
    assert anna.claim(key).error_code == 0
    for stranger in strangers(machine):
        refused = known_to(stranger, anna, key).resume(key)
        assert refused.error_code == ErrorCode.OWNERSHIP_FENCED
        assert "secret" in (refused.error_message or "")
    assert anna.renew(key).error_code == 0


@pytest.mark.parametrize("key", [P0, NAME])
def test_a_stranger_that_names_the_owner_id_does_not_repeat_the_claim(key: ResourceKey) -> None:
    machine = Machine()
    anna = machine.client("anna")
    granted = anna.claim(key, IF_FREE)
    for stranger in strangers(machine):
        assert stranger.claim(key, IF_FREE).error_code == ErrorCode.RESOURCE_OWNED
    assert anna.renew(key).error_code == 0
    taken = machine.client("anna", secret=STRANGER).claim(key, granted.generation)
    assert (taken.generation, taken.incarnation) == (granted.generation + 1, granted.incarnation + 1)


@pytest.mark.parametrize("key", [P0, NAME])
def test_a_stranger_that_names_the_owner_id_does_not_release(key: ResourceKey) -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(key)
    for stranger in strangers(machine):
        assert known_to(stranger, anna, key).release(key).error_code == ErrorCode.OWNERSHIP_FENCED
    assert anna.renew(key).error_code == 0


def test_a_stranger_that_names_the_owner_id_learns_no_standing() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(P0)
    for stranger in strangers(machine):
        assert known_to(stranger, anna, P0).renew(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_a_stranger_that_names_the_owner_id_leaves_its_place_in_the_queue_alone() -> None:
    machine = Machine()
    ben = machine.client("ben")
    ben.claim(P0)
    anna = machine.client("anna")
    assert anna.claim(P0, IF_FREE, wait_ms=-1).position == 1
    stranger, secretless = strangers(machine)
    assert stranger.claim(P0, IF_FREE, wait_ms=-1).position == 2
    assert secretless.claim(P0, IF_FREE, wait_ms=-1).position == 3
    assert machine.client("anna", secret=b"").claim(P0, IF_FREE, wait_ms=-1).position == 4
    assert machine.client("anna", secret=b"a second stranger").release(P0, -1).error_code
    assert stranger.release(P0, -1).error_code == 0
    assert anna.renew(P0).position == 1
    assert secretless.renew(P0).position == 2
    ben.release(P0)
    assert anna.claim(P0, IF_FREE).error_code == 0


def test_a_producer_that_names_the_id_of_another_gets_no_access() -> None:
    machine = Machine()
    anna = machine.client("anna")
    epoch = anna.access_to(P0, ProducerAccessMode.EXCLUSIVE).generation
    for stranger in strangers(machine):
        refused = stranger.access_to(P0, ProducerAccessMode.EXCLUSIVE)
        assert refused.error_code == ErrorCode.RESOURCE_OWNED
        refused = stranger.access_to(P0, ProducerAccessMode.EXCLUSIVE, epoch)
        assert refused.error_code == ErrorCode.PRODUCER_FENCED
    assert anna.renew(P0).error_code == 0


def test_a_claim_whose_answer_was_lost_is_repeated_on_another_connection() -> None:
    machine = Machine()
    anna = machine.client("anna")
    ticket = anna.ask_claim((P0, IF_FREE))
    (lost,) = machine.answer(ticket)
    anna.reconnect()
    repeated = anna.claim(P0, IF_FREE)
    assert (repeated.error_code, repeated.incarnation) == (0, lost.incarnation)


def test_the_next_leader_checks_the_secret() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(P0)
    machine.fail_over()
    for stranger in strangers(machine):
        assert known_to(stranger, anna, P0).resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
        assert stranger.claim(P0, IF_FREE).error_code == ErrorCode.RESOURCE_OWNED
    anna.reconnect()
    assert anna.resume(P0).error_code == 0


def test_the_record_has_no_secret_and_keeps_a_digest_of_the_latest_grant_only() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(P0)
    ben = machine.client("ben")
    ben.claim(P0)
    data = machine.znodes[P0][0]
    before, now = machine.record(P0).histories["app"]
    assert anna.secret.hex().encode() not in data
    assert (before.owner.secret_digest, len(now.owner.secret_digest or b"")) == (b"", 32)
    assert "secret" not in repr(now)


def test_a_client_without_a_secret_is_the_owner_on_its_connection_only() -> None:
    machine = Machine()
    old = machine.client("old", secret=b"")
    granted = old.claim(P0, IF_FREE)
    assert old.claim(P0, IF_FREE).incarnation == granted.incarnation
    assert old.renew(P0).error_code == 0
    old.reconnect()
    assert old.claim(P0, IF_FREE).error_code == ErrorCode.RESOURCE_OWNED
    assert old.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    assert old.release(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    machine.close(1)
    assert old.claim(P0, IF_FREE).generation == granted.generation + 1
    assert old.release(P0).error_code == 0


def without_secret(machine: Machine, key: PartitionKey) -> None:
    """Rewrite the record as a broker without secrets would have written it."""
    data, version = machine.znodes[key]
    value = json.loads(data)
    for grants in value["groups"].values():
        for grant in grants:
            del grant["secret"]
    machine.znodes[key] = (json.dumps(value).encode(), version)


@pytest.mark.parametrize("secret", [None, b""])
def test_an_owner_recorded_by_an_older_broker_resumes_by_its_id(secret: bytes | None) -> None:
    machine = Machine()
    anna = machine.client("anna", secret=secret)
    anna.claim(P0)
    without_secret(machine, P0)
    machine.fail_over()
    anna.reconnect()
    assert anna.resume(P0).error_code == 0
    machine.flush()
    machine.fail_over()
    for stranger in strangers(machine):
        assert known_to(stranger, anna, P0).resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    assert machine.record(P0).histories["app"][-1].owner.secret_digest is not None


def test_a_grant_lost_to_silence_is_revived_by_its_secret_only() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(P0)
    machine.advance(SESSION_MS + 1)
    for stranger in strangers(machine):
        assert known_to(stranger, anna, P0).resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    anna.reconnect()
    assert anna.resume(P0).error_code == 0
