"""Bounds of what one client can make a broker hold or do, each taken away: a test has to notice.

Bounds that the simulation reaches have their mutations in tests/sim/mutants, those of transactions in
tests/broker/test_transaction_mutations.py and tests/coordinator/transactions/test_mutations.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast_log.broker.log.inspection import Inspection
from holdfast_log.broker.log.producer_totals import ProducerTotals
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.tls import handshakes
from holdfast_log.broker.network.tls.handshakes import Handshakes, Handshaking
from holdfast_log.broker.ownership import audit_lines, limits
from holdfast_log.broker.ownership.record_sizes import RecordSizes
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.broker.quotas.store import QuotaStore
from holdfast_log.broker.replication import fetch_sessions
from holdfast_log.broker.replication.fetch_sessions import FetchSessions
from holdfast_log.broker.requests import answers, dispatch, parts
from holdfast_log.broker.requests.answers import LongAnswer
from holdfast_log.broker.security import administration
from holdfast_log.broker.security.authorizer import AclAuthorizer
from holdfast_log.coordinator.cluster import acls
from holdfast_log.coordinator.cluster.acls import Acls
from holdfast_log.protocol.errors import BrokerError
from tests.broker import test_answers as of_answers
from tests.broker import test_dispatch as of_dispatch
from tests.broker import test_parts as of_parts
from tests.broker.log import test_damage as of_damage
from tests.broker.log import test_producer_totals as of_totals
from tests.broker.network import test_connection as of_connection
from tests.broker.network import test_rotation as of_rotation
from tests.broker.network.tls import test_handshakes as of_handshakes
from tests.broker.ownership import test_limits as of_ownership
from tests.broker.quotas import test_store as of_quotas
from tests.broker.replication import test_fetch_sessions as of_sessions
from tests.broker.security import test_many_lists as of_lists
from tests.missed import assert_missed

Check = Callable[[], None]
_MANY = 1 << 60
CAUGHT = (AssertionError, ValueError, KeyError, TypeError, BrokerError)


def nothing(self: Any, *arguments: Any) -> None:
    """The bound is not kept."""


async def no_turn(self: LongAnswer) -> None:
    """The answer goes on in the same turn, and holds nothing."""


def may_handle(self: ServerConnection) -> bool:
    return self.close_reason is None and self._unmute is None and not self._holds


_rules_changed = AclAuthorizer.rules_changed


def copying(self: AclAuthorizer, changes: Acls) -> None:
    self._rules = self._rules.copy()
    _rules_changed(self, changes)


def expect_and_begin(self: Handshakes, one: Handshaking) -> None:
    _EXPECT(self, one)
    self.begin(one)


_EXPECT = Handshakes.expect


def step_at_once(self: Handshakes, one: Handshaking) -> None:
    one.shake()


def slice_apart(self: Handshakes) -> None:
    self._clock.callLater(0, self.take_slice, math.inf)


_room, _put = limits._room, RecordSizes.put


def keeping_history(state: TableState, resource: Any, *arguments: Any) -> str | None:
    refused = _room(state, resource, *arguments)
    resource.history_bytes_max = 1 << 20
    return refused


def counted_twice(self: RecordSizes, key: Any, sizes: Mapping[str, int]) -> None:
    self.total += sum(size for _, size in self._by_key.get(key, ()))
    _put(self, key, sizes)


def call_apart(self: Rotation, function: Callable[[], None]) -> None:
    self._clock.callLater(0, function)


def enqueue_at_once(self: Rotation, connection: Any) -> None:
    self._line.append(connection)
    if not self._is_due:
        self._expect_turn()


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "long answers have time of their own between two looks at the sockets": (
        Rotation, "call", call_apart, of_rotation.test_all_that_can_wait_takes_one_turn_together,
    ),
    "a long answer goes on between the same two looks at the sockets": (
        Rotation, "enqueue_next", Rotation.enqueue,
        of_rotation.test_work_of_the_next_turn_waits_for_a_look_at_the_sockets,
    ),
    "rows of an answer, and parts of a request, go on after their slice": (
        Rotation, "is_over", False, of_parts.test_a_part_that_took_long_ends_the_turn,
    ),
    "an answer may have any length": (
        LongAnswer, "reserve", lambda self, price: True,
        of_answers.test_what_is_beyond_the_limit_of_an_answer_is_refused,
    ),
    "any number of answers is made at once": (
        answers, "ACTIVE_MAX", _MANY, of_answers.test_few_answers_are_being_made_at_a_time,
    ),
    "requests that are sent ahead are decoded while a long one waits for the topics that it creates": (
        LongAnswer, "other_turn", no_turn,
        of_answers.test_requests_that_are_sent_ahead_wait_for_topics_that_a_long_one_creates,
    ),
    "a part of a request may have any number of rows": (
        parts, "PART_ROWS", _MANY,
        of_parts.test_a_long_request_is_handled_in_parts_and_answered_as_if_at_once,
    ),
    "a long request is decoded in one turn": (
        dispatch, "LONG_BYTES", _MANY,
        of_dispatch.test_a_long_request_is_decoded_in_turns_and_others_go_first,
    ),
    "the next request of a connection overtakes one that is decoded in turns": (
        ServerConnection, "hold", nothing,
        of_dispatch.test_a_long_request_is_decoded_in_turns_and_others_go_first,
    ),
    "the line goes on before the next look at the sockets": (
        Rotation, "enqueue", enqueue_at_once,
        of_rotation.test_a_long_request_ends_the_time_before_the_next_look_at_the_sockets,
    ),
    "a batch may have an offset for which the indexes have no room": (
        Inspection, "_upper_offset", property(lambda self: self.next_offset),
        of_damage.test_an_offset_beyond_those_of_a_segment_is_damage_though_a_compacted_log_has_gaps,
    ),
    "any number of users, clients and addresses has quotas": (
        QuotaStore, "configs_changed", nothing,
        of_quotas.test_brokers_keep_a_limited_number_of_entities_with_quotas,
    ),
    "a session of fetches has any number of partitions": (
        FetchSessions, "_make_room", lambda self, *wanted: True,
        of_sessions.test_a_reader_of_more_partitions_than_the_limit_replaces_no_session,
    ),
    "a connection that closes drops all partitions of its sessions at once": (
        fetch_sessions, "LEFT_MAX", _MANY,
        of_sessions.test_a_connection_that_closes_takes_a_turn_for_few_partitions,
    ),
    "partitions of closed sessions leave room before they are dropped": (
        FetchSessions, "left_partitions", 0,
        of_sessions.test_partitions_that_are_not_dropped_yet_leave_less_room,
    ),
    "all connections have any number of owned resources": (
        limits, "connection_limit", lambda state, connection, key: None,
        of_ownership.test_all_connections_of_a_broker_together_have_a_limited_number_of_resources,
    ),
    "records of what is owned have any number of bytes": (
        TableState, "has_room", lambda self, source: True,
        of_ownership.test_all_records_of_a_broker_together_have_a_limited_number_of_bytes,
    ),
    "one source may take all the room of the records": (
        TableState, "share_of", lambda self, source: _MANY,
        of_ownership.test_one_source_leaves_room_for_the_records_of_others,
    ),
    "past grants fill the share of a source": (
        TableState, "keeps_past", TableState.has_room,
        of_ownership.test_past_grants_leave_half_of_the_share_for_further_resources,
    ),
    "full records keep past grants": (
        limits, "_room", keeping_history,
        of_ownership.test_all_records_of_a_broker_together_have_a_limited_number_of_bytes,
    ),
    "records that are replaced are counted twice": (
        RecordSizes, "put", counted_twice,
        of_ownership.test_room_for_records_is_found_by_forgetting_free_names_and_counted_anew,
    ),
    "all audit lines of an event are written at once": (
        audit_lines, "LINES_AT_ONCE", _MANY,
        of_ownership.test_the_audit_lines_of_many_resources_are_written_in_turns,
    ),
    "all access control lists are read in one turn": (
        acls, "TOGETHER", _MANY, of_lists.test_many_lists_are_read_and_compiled_in_turns,
    ),
    "a part of many access control lists is in force before the others": (
        AclAuthorizer, "prepare", AclAuthorizer.rules_changed,
        of_lists.test_what_allows_is_never_in_force_without_what_denies,
    ),
    "all access control lists are copied for a change of one": (
        AclAuthorizer, "rules_changed", copying,
        of_lists.test_a_change_of_one_list_among_many_compiles_and_copies_no_other,
    ),
    "all access control lists are sorted in one turn": (
        administration, "_SORTED_TOGETHER", _MANY,
        of_lists.test_all_lists_are_described_in_order_and_sorted_in_turns,
    ),
    "any number of requests of a connection is in flight": (
        ServerConnection, "_may_handle", may_handle,
        of_connection.test_requests_in_flight_do_not_exceed_the_limit,
    ),
    "a source has any number of producers": (
        ProducerTotals, "_keep_source", nothing,
        of_totals.test_one_source_over_all_partitions_has_a_bound_and_takes_places_from_itself_only,
    ),
    "many sources have any number of producers": (
        ProducerTotals, "_keep_producers", nothing,
        of_totals.test_many_sources_together_have_a_bound_and_an_honest_one_with_few_keeps_its_own,
    ),
    "all logs have any number of append ids": (
        ProducerTotals, "_keep_append_ids", nothing,
        of_totals.test_append_ids_of_all_logs_have_a_bound_and_a_writer_with_few_keeps_its_own_or_is_told,
    ),
    "a peer that has sent nothing counts as one whose handshake goes on": (
        Handshakes, "expect", expect_and_begin,
        of_handshakes.test_peers_that_have_not_begun_displace_nobody,
    ),
    "handshakes take any time of a turn": (
        handshakes, "TURN_S", _MANY,
        of_handshakes.test_a_crowd_takes_its_share_of_each_turn_and_all_have_their_turn,
    ),
    "steps of all handshakes are taken while sockets are read": (
        Handshakes, "step", step_at_once,
        of_handshakes.test_one_expensive_step_is_taken_between_two_looks_at_the_sockets_however_many_wait,
    ),
    "handshakes go on between the same two looks at the sockets": (
        Rotation, "enqueue_next", Rotation.enqueue,
        of_handshakes.test_one_expensive_step_is_taken_between_two_looks_at_the_sockets_however_many_wait,
    ),
    "handshakes have time of their own between two looks at the sockets": (
        Handshakes, "_expect_slice", slice_apart,
        of_handshakes.test_handshakes_of_all_listeners_and_all_other_work_that_can_wait_take_one_turn_together,
    ),
    "handshakes that begin go before those under way": (
        handshakes, "CONTINUED", 0,
        of_handshakes.test_one_under_way_is_done_before_so_many_begin_that_it_gives_way,
    ),
    "handshakes under way go before all that begin": (
        handshakes, "CONTINUED", _MANY, of_handshakes.test_those_under_way_keep_nobody_from_beginning,
    ),
    "all late handshakes end in one turn": (
        handshakes, "TURN_S", _MANY, of_handshakes.test_a_crowd_that_is_late_ends_in_several_turns,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bound_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_missed(monkeypatch, CAUGHT, *MUTATIONS[name])
