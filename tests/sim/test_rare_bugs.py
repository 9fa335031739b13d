"""Fixed scenarios catch the known bugs that a campaign rarely catches, and some others."""

from __future__ import annotations

import errno
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from holdfast_log.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from holdfast_log.broker.replication import usual_fetch
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.ownership import NO_PARTITION, Access
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.scram import ScramMechanism
from tests.broker import test_answers as of_answers
from tests.broker import test_cluster_rights as of_rights
from tests.broker import test_data_path as of_data_path
from tests.broker import test_decompression_budget as of_budgets
from tests.broker import test_dispatch as of_dispatch
from tests.broker import test_internal_topics as of_internal_topics
from tests.broker import test_metadata as of_metadata
from tests.broker import test_outages as of_outages
from tests.broker import test_parts as of_parts
from tests.broker import test_poison_batches as of_poison
from tests.broker import test_time_look_ups as of_time_look_ups
from tests.broker.cleaning import test_cleaner as of_cleaner
from tests.broker.cleaning import test_crashes as of_crashes
from tests.broker.cleaning import test_turns as of_turns
from tests.broker.groups import test_offset_handlers as of_group_offsets
from tests.broker.groups import test_owner_commits as of_commits
from tests.broker.log import test_append_ids as of_append_ids
from tests.broker.log import test_damage as of_damage
from tests.broker.log import test_disk_faults as of_disks
from tests.broker.log import test_key_memory as of_key_memory
from tests.broker.log import test_key_versions as of_index
from tests.broker.log import test_log as of_logs
from tests.broker.log import test_manager as of_managers
from tests.broker.log import test_producer_totals as of_totals
from tests.broker.log import test_recovery as of_recovery
from tests.broker.log import test_time_search as of_time_search
from tests.broker.log import test_transactions as of_log_transactions
from tests.broker.network import test_framing as of_framing
from tests.broker.network import test_handshake as of_handshake
from tests.broker.network import test_listener as of_listeners
from tests.broker.network import test_memory as of_memory
from tests.broker.network import test_outgoing as of_outgoing
from tests.broker.network import test_rotation as of_rotation
from tests.broker.network import test_trust as of_trust
from tests.broker.ownership import test_enforcement as of_enforcement
from tests.broker.ownership import test_fencing as of_fences
from tests.broker.ownership import test_group_readers as of_members
from tests.broker.ownership import test_handover as of_handovers
from tests.broker.ownership import test_limits as of_limits
from tests.broker.ownership import test_lost_lease as of_leases
from tests.broker.ownership import test_many_names as of_many_names
from tests.broker.ownership import test_many_resources as of_many_resources
from tests.broker.ownership import test_own_api as of_claims
from tests.broker.ownership import test_principals as of_principals
from tests.broker.ownership import test_revocation as of_revocations
from tests.broker.ownership import test_strangers as of_strangers
from tests.broker.ownership.machine import Machine
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.quotas import test_precedence as of_precedence
from tests.broker.quotas import test_store as of_quotas
from tests.broker.replication import test_conditions as of_offsets
from tests.broker.replication import test_fan_out as of_fan_out
from tests.broker.replication import test_fetch_sessions as of_sessions
from tests.broker.replication import test_fetcher as of_fetchers
from tests.broker.replication import test_following as of_followers
from tests.broker.replication import test_held_requests as of_held_requests
from tests.broker.replication import test_introducing as of_introductions
from tests.broker.replication import test_isr_proposals as of_proposals
from tests.broker.replication import test_key_conditions as of_conditions
from tests.broker.replication import test_repair as of_repairs
from tests.broker.replication import test_replica_sessions as of_replica_sessions
from tests.broker.replication import test_retention as of_retention
from tests.broker.replication import test_several_appends as of_several_appends
from tests.broker.security.sasl import gated as of_gates
from tests.broker.security.sasl import test_gates as of_sasl
from tests.broker.security.sasl import test_revocation as of_logins
from tests.broker.security.sasl import test_users as of_users
from tests.clients import test_consumer as of_consumers
from tests.clients import test_exclusive_producer as of_exclusive
from tests.clients import test_hostile_brokers as of_hostile
from tests.clients.connection import test_complete_answers as of_complete
from tests.clients.connection import test_connection as of_connections
from tests.clients.connection import test_hostile_frames as of_frames
from tests.clients.groups import test_classic as of_classic
from tests.clients.groups.party import Party
from tests.clients.sending import test_coroutines as of_coroutines
from tests.clients.sending import test_timeouts as of_timeouts
from tests.coordinator.cluster import test_handed_out_ids as of_handed_out_ids
from tests.coordinator.cluster import test_lease as of_own_leases
from tests.coordinator.controller import test_features as of_features
from tests.coordinator.controller import test_machine as of_controllers
from tests.coordinator.controller import test_recovery as of_elections
from tests.coordinator.controller import test_topics as of_topics
from tests.coordinator.controller import test_waiting_request as of_waiting_requests
from tests.coordinator.groups import test_member_memory as of_member_memory
from tests.coordinator.groups import test_offsets as of_group_memory
from tests.coordinator.zookeeper import test_call_queue as of_call_queue
from tests.models import test_zookeeper_contract as of_zookeeper
from tests.models.batches import START_MS
from tests.models.grounds import ModelGround
from tests.models.logs import sim_disk
from tests.models.rules import Rules
from tests.models.world import World
from tests.protocol.sasl import test_scram as of_scram
from tests.sim import mutants, rare_appends, rare_moves, rare_transactions
from tests.sim import test_damaged_end as of_damaged_ends
from tests.sim import test_damaged_leader as of_damaged
from tests.sim import test_fence_followed as of_successions
from tests.sim import test_grown_topic as of_grown_topics
from tests.sim import test_last_replica as of_last_replicas
from tests.sim import test_replaced_decider as of_deciders
from tests.sim import test_stop as of_stops
from tests.sim import test_unclean_compaction as of_unclean
from tests.sim import test_unreadable_znodes as of_unreadable
from tests.sim import test_zookeeper_away as of_outages_in_sim
from tests.sim.cluster import logs_in_trace
from tests.sim.mutation import Mutation, mutated
from tests.sim.mutations import MUTATIONS, RARE, by_name


def _simulated(seed: int, scenario: Callable[[World], None]) -> Callable[[Path], None]:
    """A scenario in a simulated world of this seed."""

    def run(path: Path) -> None:
        world = World(seed)
        with logs_in_trace(world):
            scenario(world)

    return run


def _with_rules(scenario: Callable[[OwnershipWorld, Rules], None]) -> Callable[[Path], None]:
    """A scenario in which clients are judged by rules."""

    def run(path: Path) -> None:
        rules = Rules(set())
        scenario(of_revocations.judged_world(path, rules), rules)

    return run


def _with_patches(scenario: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patches:
        scenario(patches)


def _commit_under_check(path: Path) -> None:
    broker = of_commits.coordinator(path)
    with pytest.MonkeyPatch.context() as patches:
        of_commits.test_a_commit_under_check_does_not_replace_an_offset_that_the_next_owner_has_read(
            broker, of_commits.read_slowly_in(broker, patches)
        )


def _with_world(scenario: Callable[[of_conditions.World], None]) -> Callable[[Path], None]:
    return lambda path: scenario(of_conditions.world_with(path))


def _with_unclean_election(scenario: Callable[[of_unclean.Scene], None]) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        world = World(of_unclean.WORLD_SEED)
        with logs_in_trace(world), pytest.MonkeyPatch.context() as patches:
            scene = of_unclean.Scene(world)
            of_unclean.hold_passes(scene, patches)
            with scene.judge.watching(), scene.checkpoint_judge.watching():
                scenario(scene)

    return run


def _with_stranger(path: Path, scenario: Callable[[OwnershipWorld, Owner], None]) -> None:
    world = of_leases.leading_world(path)
    anna = world.owner("anna")
    anna.claim("t")
    scenario(world, anna)


def _wait_for_records(path: Path, form: str) -> None:
    world = OwnershipWorld(path)
    world.lead("t")
    of_enforcement.test_a_waiting_fetch_is_refused_after_its_group_gets_another_reader(world, form)


def _return_to_a_broker() -> None:
    with pytest.MonkeyPatch.context() as patches:
        of_managers.test_a_partition_that_returns_grows_only_once_no_checkpoint_has_its_old_recovery_point(
            "delete", patches
        )


def _lose_a_page(world: World) -> None:
    with pytest.MonkeyPatch.context() as patches:
        of_damaged_ends.test_a_file_that_has_lost_its_end_from_a_page_on_is_no_interrupted_write(
            world, patches
        )


def _mark_in_recovered_segment() -> None:
    disk = sim_disk()
    of_recovery.test_recovery_believes_no_mark_of_damage_in_a_segment_that_it_could_read(
        16, disk, of_recovery.filled(disk)
    )


def _with_many_names(
    scenario: Callable[[OwnershipWorld, pytest.MonkeyPatch], None],
) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patches:
            scenario(OwnershipWorld(path), patches)

    return run


def _with_many_resources(
    scenario: Callable[[OwnershipWorld, Owner, pytest.MonkeyPatch], None],
) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        world = OwnershipWorld(path)
        with pytest.MonkeyPatch.context() as patches:
            scenario(world, of_many_resources.owner_of_many(world), patches)

    return run


def _fetch_ahead(path: Path) -> None:
    world = of_fan_out.World(path)
    world.assign("t")
    of_fan_out.test_an_append_wakes_few_fetches_that_one_connection_has_sent_ahead(world)


def _drop_a_topic_and_read_on() -> None:
    cluster = of_classic.filled_cluster()
    party = Party(cluster, partition_assignment_strategy="range")
    of_classic.TestComingAndGoing().test_a_partition_of_a_dropped_topic_can_be_read_beside_the_group(
        party, cluster, 0
    )


def _in_ownership_world(scenario: Callable[[OwnershipWorld], None]) -> Callable[[Path], None]:
    return lambda path: scenario(OwnershipWorld(path))


def _ask_before_the_first_update() -> None:
    broker = of_metadata.TestBeforeTheFirstUpdate()
    broker.setup_method()
    broker.test_answers_wait_for_the_first_update()


def _former_member_fetches(path: Path) -> None:
    leader = of_members.Leader(path)
    anna, bert = of_members.Member(leader, "anna"), of_members.Member(leader, "bert")
    reading = of_members.TestReading()
    reading.test_a_new_assignment_stops_the_former_members_fetches_at_once(leader, anna, bert)


def _pause_answered_owner(path: Path) -> None:
    world = OwnershipWorld(path)
    world.lead("t")
    anna = world.owner("anna")
    anna.claim("t")
    of_enforcement.test_a_paused_owner_whose_last_renew_was_answered_is_pinged_too(world, anna)


def _claim_again() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(of_claims.P0)
    of_claims.test_a_waiter_that_claims_again_keeps_its_place_and_waits_as_long_as_it_said_last(
        machine, anna, -1
    )


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "later-batch-taken-first": lambda path: (
        of_introductions.test_a_batch_does_not_pass_an_earlier_one_that_was_refused_for_now(
            of_introductions.world_in(path)
        )
    ),
    "batch-overtaken-at-next-leader": lambda path: (
        of_introductions.test_a_batch_does_not_pass_an_earlier_one_that_another_leader_refused(
            of_introductions.world_in(path)
        )
    ),
    "made-up-id-taken": lambda path: (
        of_handed_out_ids.test_an_id_far_above_all_blocks_is_refused_for_good_while_the_znode_was_read_lately()
    ),
    "any-epoch-raised": lambda path: (
        of_introductions.test_a_stranger_cannot_raise_the_epoch_of_anothers_producer(
            of_introductions.world_in(path)
        )
    ),
    "strangers-evict": lambda path: of_introductions.test_made_up_ids_of_a_stranger_evict_no_honest_producer(
        of_introductions.world_in(path)
    ),
    "left-to-python-half-done": (
        of_several_appends.test_batches_beside_one_that_is_left_to_python_are_appended_once
    ),
    "producers-without-total": lambda path: (
        of_totals.test_one_source_over_all_partitions_has_a_bound_and_takes_places_from_itself_only()
    ),
    "total-takes-from-others": lambda path: (
        of_totals.test_one_source_over_all_partitions_has_a_bound_and_takes_places_from_itself_only()
    ),
    "internal-topic-altered": lambda path: (
        of_internal_topics.test_an_internal_topic_is_not_given_settings_with_which_brokers_lose_their_state(
            "min.insync.replicas", "100"
        )
    ),
    "internal-topic-created": lambda path: (
        of_internal_topics.test_a_client_that_creates_the_offsets_topic_cannot_stop_groups_by_its_replicas()
    ),
    "index-without-entries": lambda path: (
        of_internal_topics.test_a_topic_keeps_a_sparse_index_that_it_has_and_none_is_created_with_one()
    ),
    "index-of-every-batch": lambda path: (
        of_internal_topics.test_a_client_makes_no_index_so_dense_that_it_does_not_fit_into_memory()
    ),
    "queues-without-total": lambda path: of_limits.test_all_queues_of_a_broker_together_have_a_limit(),
    "altered-many-times": lambda path: (
        of_rights.test_a_resource_that_is_named_many_times_is_not_altered_at_all(
            IncrementalAlterConfigsHandler
        )
    ),
    "quota-of-one-byte": lambda path: of_quotas.test_nobody_stops_all_clients_by_a_quota_of_nearly_nothing(
        of_quotas.Quotas(), {"user": None}, "producer_byte_rate", 1024.0
    ),
    "blocks-unlearned": lambda path: (
        of_handed_out_ids.test_an_id_of_another_brokers_block_is_refused_once_and_then_known()
    ),
    "subscriptions-without-limit": lambda path: (
        of_member_memory.test_all_groups_have_a_limit_together_and_closed_members_free_their_memory()
    ),
    "offsets-without-limit": lambda path: (
        of_group_memory.TestMemory().test_all_groups_have_a_limit_together()
    ),
    "fetch-waits-beside-news": lambda path: (
        of_replica_sessions.test_a_fetch_has_what_is_written_elsewhere_because_of_the_position_that_it_brings(
            path
        )
    ),
    "removed-index-synced": lambda path: (
        of_log_transactions.test_a_log_is_flushed_after_a_truncation_of_its_only_aborted_transaction()
    ),
    "ended-transaction-repeated": lambda path: (
        of_log_transactions.test_a_sequence_of_an_ended_transaction_is_no_repeated_attempt()
    ),
    "features-of-one-epoch": lambda path: (
        of_features.test_the_version_rises_with_the_last_broker_and_all_learn_of_it_in_a_later_epoch()
    ),
    "absent-broker-not-counted": lambda path: (
        of_features.test_a_broker_that_is_away_counts_while_it_has_replicas()
    ),
    "long-request-handled-whole": lambda path: (
        of_parts.test_a_long_request_is_handled_in_parts_and_answered_as_if_at_once()
    ),
    "long-request-overtaken": lambda path: (
        of_parts.test_a_later_request_does_not_overtake_one_that_is_handled_in_parts()
    ),
    "waiting-sessions-looked-at": lambda path: (
        of_sessions.test_fetches_that_wait_for_more_cost_a_write_nothing_but_the_first(1_000)
    ),
    "floods-served-on-arrival": lambda path: of_rotation.test_all_who_send_ahead_take_one_turn_together(50),
    "slices-as-long-as-turns": lambda path: of_rotation.test_who_comes_later_waits_for_one_slice_of_each(),
    "frames-cut-at-once": lambda path: (
        of_framing.test_what_is_not_cut_yet_is_not_overwritten_by_another_connection()
    ),
    "small-answers-apart": lambda path: (
        of_outgoing.test_small_answers_that_wait_take_little_more_memory_than_their_bytes()
    ),
    "long-answers-begun-ahead": lambda path: (
        of_answers.test_requests_that_are_sent_ahead_wait_for_a_long_answer_before_they_are_begun()
    ),
    "renewed-in-one-turn": _with_many_resources(
        of_many_resources.test_a_renew_of_many_resources_looks_at_a_few_in_each_turn
    ),
    "resumed-in-one-turn": _with_many_resources(of_many_resources.test_many_grants_are_resumed_in_parts),
    "renewals-wait-without-limit": lambda path: (
        of_many_resources.test_waiting_renews_of_a_connection_name_few_resources_together()
    ),
    "fetches-wait-without-limit": _fetch_ahead,
    "requests-of-any-size": lambda path: (
        of_dispatch.test_a_large_request_without_records_closes_the_connection(of_dispatch.connect()[0])
    ),
    "waiting-answer-keeps-its-turn": lambda path: of_parts.test_a_part_that_waits_costs_no_turns(),
    "memory-charged-on-announcement": lambda path: (
        of_memory.test_memory_is_charged_for_what_was_received_not_for_what_was_announced()
    ),
    "incomplete-requests-kept": lambda path: (
        of_memory.test_a_request_that_is_never_complete_ends_at_its_deadline()
    ),
    "altered-all-at-once": lambda path: (
        of_rights.test_many_resources_are_altered_some_at_a_time_whether_or_not_one_is_named_twice(
            IncrementalAlterConfigsHandler
        )
    ),
    "late-all-at-once": lambda path: (
        of_waiting_requests.test_a_request_of_many_parts_is_late_in_several_turns()
    ),
    "zookeeper-answers-at-once": lambda path: of_call_queue.test_calls_are_made_some_at_a_time_and_in_order(),
    "topic-answered-twice": lambda path: of_answers.test_a_topic_that_is_named_many_times_is_answered_once(),
    "long-answer-made-at-once": lambda path: (
        of_answers.test_a_long_answer_is_made_in_turns_and_reads_as_if_made_at_once()
    ),
    "unread-answers-kept": lambda path: (
        of_answers.test_clients_that_do_not_read_are_closed_when_all_answers_are_over_their_limit()
    ),
    "idle-tombstones-stay": lambda path: (
        of_cleaner.test_a_tombstone_goes_after_its_horizon_although_nothing_new_was_written(False)
    ),
    "warm-headers-believed": lambda path: (
        of_damage.test_headers_are_checked_although_the_page_cache_has_the_records(1)
    ),
    "fetched-epoch-believed": lambda path: (
        of_followers.test_a_follower_appends_the_sound_batches_before_a_damaged_one_and_tells_the_leader(
            of_followers.LEADER_EPOCH, 6
        )
    ),
    "sound-batches-refused": lambda path: (
        of_followers.test_a_follower_appends_the_sound_batches_before_a_damaged_one_and_tells_the_leader(
            of_followers.BASE_OFFSET + 5, 2
        )
    ),
    "refusal-untold": lambda path: (
        of_followers.test_a_follower_appends_the_sound_batches_before_a_damaged_one_and_tells_the_leader(
            of_followers.RECORDS + 1, 0
        )
    ),
    "restarts-without-pause": lambda path: (
        of_fetchers.test_a_replica_that_deletes_its_records_again_and_again_pauses_longer_each_time()
    ),
    "changed-length-believed": _simulated(
        3,
        lambda world: of_damaged_ends.test_a_bit_of_one_replicas_last_batch_loses_no_record_of_the_others(
            world, of_damaged_ends.LENGTH + 1, 3
        ),
    ),
    "returned-below-checkpoint": lambda path: _return_to_a_broker(),
    "lost-page-believed": _simulated(1, _lose_a_page),
    "begun-epochs-ignored": _simulated(
        1,
        lambda world: of_damaged_ends.test_a_last_batch_with_another_epoch_that_has_begun_is_noticed(
            world, 0
        ),
    ),
    "begun-epochs-unrecorded": _simulated(
        1,
        lambda world: of_damaged_ends.test_a_bit_of_one_replicas_last_batch_loses_no_record_of_the_others(
            world, of_damaged_ends.LEADER_EPOCH + 3, 0
        ),
    ),
    "impossible-epoch-believed": lambda path: (
        of_followers.test_a_leader_epoch_that_has_not_begun_is_not_believed(True)
    ),
    "last-offset-believed": lambda path: (
        of_recovery.test_a_batch_whose_offset_is_too_high_does_not_make_the_log_longer(2, False, sim_disk())
    ),
    "emptied-files-kept": lambda path: (
        of_recovery.test_a_log_that_ends_before_its_start_leaves_no_files_behind()
    ),
    "shortened-segment-believed": lambda path: (
        of_damage.test_a_segment_of_a_compacted_log_that_lost_its_last_batches_is_found_at_loading({})
    ),
    "truncated-epoch-kept": lambda path: (
        of_recovery.test_the_epoch_of_a_truncated_record_does_not_take_the_record_that_follows()
    ),
    "damage-passed-over": lambda path: of_damage.test_a_read_before_damage_says_that_it_ends_there(1),
    "append-id-of-deleted-record-denied": lambda path: (
        of_append_ids.test_a_replica_that_begins_behind_deleted_records_does_not_know_their_ids()
    ),
    "append-id-forgotten-for-strangers": lambda path: (
        of_append_ids.test_beyond_the_limit_for_all_the_producer_with_the_most_ids_forgets_one()
    ),
    "key-memory-for-nobody": lambda path: (
        of_key_memory.test_an_index_of_many_keys_is_not_held_down_by_thousands_that_have_none()
    ),
    "append-ids-counted-by-producer": lambda path: (
        of_append_ids.test_many_producers_of_one_source_take_no_ids_from_another()
    ),
    "append-id-bound-stays": lambda path: (
        of_append_ids.test_a_follower_does_not_know_the_ids_in_a_gap_that_compaction_has_left()
    ),
    "unknown-leader-awaited": lambda path: (
        of_connections.test_metadata_that_names_an_unknown_broker_as_a_leader_is_asked_for_again()
    ),
    "waiters-kept": lambda path: (
        of_coroutines.test_who_gives_up_waiting_for_an_outcome_leaves_nothing_behind()
    ),
    "delivery-timeout-twice": lambda path: (
        of_timeouts.test_a_message_fails_in_time_although_something_else_happens_shortly_before(
            of_timeouts.cluster_of_flights()
        )
    ),
    "left-out-is-done": lambda path: (
        of_complete.test_a_topic_that_the_answer_leaves_out_does_not_count_as_created()
    ),
    "no-pause": lambda path: of_hostile.test_a_refusing_leader_is_asked_less_and_less_often(
        of_hostile.cluster_of_flights()
    ),
    "any-answer-believed": lambda path: (
        of_hostile.test_an_offset_look_up_without_an_offset_is_asked_again_with_growing_pauses(
            of_hostile.cluster_of_flights(), -7
        )
    ),
    "announced-length-paid": lambda path: (
        of_frames.test_an_announced_length_costs_no_memory_until_its_bytes_come()
    ),
    "endless-throttle": lambda path: of_hostile.test_a_throttle_of_weeks_is_obeyed_up_to_the_setting(
        of_hostile.cluster_of_flights()
    ),
    "partition-beside-revoked": lambda path: _drop_a_topic_and_read_on(),
    "names-loaded-in-one-turn": _with_many_names(
        of_many_names.test_a_broker_reads_many_names_in_many_turns_of_the_reactor
    ),
    "names-loaded-again-in-one-turn": _with_many_names(
        of_many_names.test_a_broker_that_leads_again_loads_many_names_in_many_turns_of_the_reactor
    ),
    "names-loaded-for-a-late-order": _with_many_names(
        of_many_names.test_a_late_order_to_lead_in_an_earlier_epoch_takes_no_name_from_its_owner
    ),
    "names-unloaded-in-one-turn": _with_many_names(
        of_many_names.test_a_broker_that_leads_no_more_unloads_many_names_in_many_turns_of_the_reactor
    ),
    "names-confirmed-while-unloaded": _in_ownership_world(
        of_many_names.test_a_name_that_is_not_unloaded_yet_is_confirmed_to_nobody
    ),
    "names-read-while-unloaded": _in_ownership_world(
        of_many_names.test_a_broker_that_leads_again_reads_names_once_the_former_ones_are_unloaded
    ),
    "names-written-while-unloaded": (
        of_many_names.test_nothing_is_written_about_a_name_from_a_former_leadership
    ),
    "sessions-ended-in-one-turn": lambda path: (
        of_limits.test_the_sessions_of_many_owners_end_in_many_turns_of_the_reactor()
    ),
    "key-version-before-commit": _with_world(
        of_conditions.test_a_refusal_waits_until_the_record_that_it_names_is_committed
    ),
    "key-version-of-replaced-leader": _with_world(
        of_conditions.test_a_lease_that_ends_before_a_refusal_is_answered_withdraws_it
    ),
    "key-versions-kept-at-truncation": lambda path: (
        of_index.test_a_truncation_removes_the_keys_in_the_table()
    ),
    "key-files-kept-at-truncation": lambda path: (
        of_index.test_a_truncation_during_a_merge_discards_its_work_and_the_log_stays_in_use()
    ),
    "key-files-of-another-history": lambda path: (
        of_index.test_a_file_of_another_history_of_the_log_is_not_used()
    ),
    "key-files-without-first-keys": lambda path: (
        of_index.test_after_a_crash_the_log_may_begin_earlier_again_than_the_files()
    ),
    "key-files-shared": lambda path: (
        of_index.test_a_job_of_an_index_that_was_switched_off_does_not_write_into_the_files_of_the_next_one()
    ),
    "key-table-unbounded": lambda path: (
        of_index.test_while_a_slow_disk_writes_a_table_the_index_falls_behind_instead_of_growing()
    ),
    "compacted-beyond-high-watermark": lambda path: (
        of_cleaner.test_no_record_from_the_high_watermark_on_is_touched()
    ),
    "horizon-before-pass": lambda path: (
        of_cleaner.test_a_tombstone_after_the_end_of_a_pass_gets_no_horizon_from_it()
    ),
    "producers-compacted-away": lambda path: (
        of_cleaner.test_a_copy_of_a_compacted_log_knows_the_last_sequence_of_each_producer()
    ),
    "epochs-compacted-away": lambda path: (
        of_cleaner.test_a_copy_of_a_compacted_log_knows_where_each_leader_epoch_began()
    ),
    "rewritten-counts-as-compacted": lambda path: (
        of_cleaner.test_a_truncation_makes_what_is_written_again_dirty()
    ),
    "swap-half-completed": lambda path: (
        of_crashes.test_a_crash_at_any_file_operation_loses_nothing_and_doubles_nothing(None)
    ),
    "swap-before-durable": lambda path: (
        of_crashes.test_a_crash_at_any_file_operation_loses_nothing_and_doubles_nothing(1)
    ),
    "swap-not-taken-back": lambda path: (
        of_crashes.test_a_log_that_changes_while_a_swap_is_pending_keeps_the_change("truncated", False)
    ),
    "truncation-not-durable": lambda path: (
        of_recovery.test_after_a_power_loss_truncated_records_are_not_before_newer_ones(0, is_flushed=True)
    ),
    "segment-ended-without-epoch": lambda path: (
        of_cleaner.test_the_batch_that_ends_a_segment_before_the_log_start_has_its_leader_epoch()
    ),
    "dirtiest-always-first": lambda path: (
        of_turns.test_a_log_that_is_always_dirty_does_not_keep_the_cleaner_from_others()
    ),
    "turns-by-partition": lambda path: (
        of_turns.test_a_topic_of_many_partitions_gets_no_more_turns_than_one_of_a_single_partition()
    ),
    "vain-passes-repeated": lambda path: of_turns.test_a_pass_that_cannot_succeed_is_tried_again_ever_later(),
    "logs-looked-at-at-once": lambda path: (
        of_cleaner.test_many_logs_are_looked_at_in_many_turns_and_the_dirtiest_of_all_is_compacted()
    ),
    "stale-plan-begun": lambda path: (
        of_cleaner.test_a_log_that_changes_while_others_are_looked_at_is_planned_again()
    ),
    "searches-wait-for-ever": lambda path: (
        of_turns.test_tombstones_of_an_earlier_process_expire_beside_a_log_that_is_always_dirty()
    ),
    "compacted-after-the-future": lambda path: (
        of_turns.test_a_record_of_the_far_future_does_not_stop_the_compaction_of_what_follows_it()
    ),
    "kept-until-the-future": of_retention.test_a_record_of_the_far_future_stays_no_longer_than_others,
    "kept-before-gap": of_retention.test_a_segment_goes_although_offsets_are_missing_before_the_next_one,
    "checkpoint-of-deleted-topic": lambda path: (
        of_managers.test_checkpoints_of_a_deleted_topic_do_not_apply_to_the_one_that_was_created_again(True)
    ),
    "damage-forgotten": lambda path: (
        of_damage.test_a_segment_of_a_compacted_log_that_lost_its_last_batches_is_found_at_loading({})
    ),
    "shortened-segment-recovered": lambda path: (
        of_recovery.test_a_compacted_log_ends_where_a_segment_has_lost_batches_that_its_indexes_name(1)
    ),
    "producers-behind-damage": lambda path: (
        of_recovery.test_the_producers_of_a_log_that_was_truncated_over_damage_are_restored_after_its_repair()
    ),
    "single-epoch-believed": lambda path: (
        of_recovery.test_recovery_believes_no_leader_epoch_that_a_single_batch_has_before_earlier_ones(5)
    ),
    "old-indexes-kept": lambda path: of_repairs.test_the_copy_of_a_compacted_segment_may_have_fewer_records(
        lambda base, first, end: first <= base < end
    ),
    "damaged-leader-stays": _simulated(
        1,
        of_damaged.test_a_damaged_leader_without_other_members_in_sync_is_replaced_by_an_eligible_replica,
    ),
    "refused-behind-damage": _simulated(
        1,
        of_damaged.test_a_damaged_leader_that_nobody_may_replace_gives_followers_the_sound_batches_behind_the_damage,
    ),
    "copy-believed": lambda path: of_repairs.test_a_copy_that_the_disk_has_damaged_replaces_nothing(),
    "gap-remembered": lambda path: of_logs.test_a_reader_continues_behind_a_gap_at_the_end_of_a_segment(1),
    "mark-outlives-damage": lambda path: (
        of_damage.test_a_log_that_is_truncated_while_its_damage_is_being_marked_has_no_mark(is_emptied=False)
    ),
    "mark-believed": lambda path: _mark_in_recovered_segment(),
    "first-wait-timeout-kept": lambda path: _claim_again(),
    "copy-before-start-refused": lambda path: (
        of_damage.test_a_copy_of_a_segment_may_lack_the_records_before_the_log_start()
    ),
    "deleted-record-counted": lambda path: (
        of_followers.test_a_follower_whose_last_record_the_leader_has_deleted_counts_once_it_has_deleted_its_own()
    ),
    "removed-notification-overlooked": lambda path: (
        of_quotas.test_a_change_is_found_although_its_notification_was_removed_before_this_broker_read_it()
    ),
    "unreadable-topic-fatal": _simulated(
        of_unreadable.WORLD_SEED,
        lambda world: of_unreadable.test_the_cluster_works_around_a_znode_that_holds_garbage(
            of_unreadable.stage_in(world), "/brokers/topics/t"
        ),
    ),
    "deletion-waits-silently": lambda path: (
        of_topics.test_creating_a_topic_that_is_still_being_deleted_is_refused_and_names_the_missing_brokers()
    ),
    "placed-before-limited": lambda path: _with_patches(
        of_topics.test_what_a_request_may_not_create_is_refused_before_it_is_placed
    ),
    "too-large-for-zookeeper": lambda path: (
        of_zookeeper.test_a_request_that_zookeeper_would_not_take_fails_and_disturbs_no_other(ModelGround())
    ),
    "large-znode-written": lambda path: (
        of_topics.test_a_topic_whose_znode_zookeeper_would_not_take_is_refused_and_nothing_is_written()
    ),
    "failed-flush-unanswered": lambda path: (
        of_disks.test_no_error_of_the_disk_leaves_a_caller_without_an_answer()
    ),
    "high-watermarks-overtaken": lambda path: (
        of_managers.test_a_slow_write_of_high_watermarks_does_not_replace_a_later_one()
    ),
    "last-record-expires": lambda path: (
        of_cleaner.test_the_last_record_of_a_log_stays_even_if_it_is_an_expired_tombstone()
    ),
    "cut-below-checkpoint": lambda path: (
        of_managers.test_a_log_that_recovery_cuts_short_has_its_lower_recovery_point_in_the_checkpoint()
    ),
    "snapshots-beyond-truncation": _simulated(
        1,
        of_stops.test_a_leader_that_stops_while_it_is_cut_off_knows_no_producer_of_what_it_truncates,
    ),
    "pass-over-truncated-log": _with_unclean_election(
        of_unclean.test_a_pass_ends_when_an_unclean_election_has_cut_off_what_it_copies
    ),
    "cut-behind-compaction": _with_unclean_election(
        lambda scene: (
            of_unclean.test_a_log_without_the_later_records_for_which_a_pass_removed_earlier_ones_is_copied_anew(
                scene, False
            )
        )
    ),
    "mapped-offset-forgotten": _with_unclean_election(
        lambda scene: (
            of_unclean.test_a_log_without_the_later_records_for_which_a_pass_removed_earlier_ones_is_copied_anew(
                scene, True
            )
        )
    ),
    "checkpoint-on-reactor": lambda path: of_managers.test_truncations_of_many_logs_share_their_checkpoint(),
    "metadata-before-first-update": lambda path: _ask_before_the_first_update(),
    "pressure-fails-directory": lambda path: (
        of_disks.test_a_lack_of_descriptors_or_memory_takes_no_directory_offline(errno.EMFILE)
    ),
    "removal-decided-once": of_retention.test_what_was_decided_before_a_wait_is_decided_again,
    "start-not-checkpointed": of_retention.test_removed_records_do_not_come_back_after_a_power_failure,
    "age-of-removed-record": (
        of_retention.test_a_compacted_segment_is_as_old_as_the_latest_record_that_it_still_has
    ),
    "deleted-before-start-durable": lambda path: (
        of_managers.test_a_crash_at_any_file_operation_of_a_record_deletion_leaves_all_from_the_start_in_force(
            loses_power=False
        )
    ),
    "own-start-counts-before-durable": lambda path: (
        of_data_path.TestDeleteRecords().test_deleting_records_waits_until_their_log_start_is_in_a_checkpoint(
            of_conditions.world_with(path)
        )
    ),
    "start-told-before-durable": (
        of_replica_sessions.test_a_deletion_waits_for_the_checkpoint_of_the_follower_and_for_nothing_else
    ),
    "deleted-up-to-later-start": lambda path: (
        of_managers.test_no_segment_is_removed_before_a_checkpoint_has_the_start_after_it()
    ),
    "removed-before-start-durable": (of_retention.test_no_file_is_touched_before_the_new_start_is_durable),
    "condition-on-removed-record": lambda path: (
        of_retention.test_a_condition_on_the_last_record_holds_after_that_record_was_removed(
            path, is_led_again=False
        )
    ),
    "epoch-of-emptied-log-lost": lambda path: (
        of_retention.test_an_emptied_log_keeps_the_epoch_of_its_last_record(path, 1, is_clean=False)
    ),
    "late-report-believed": lambda path: of_controllers.test_a_report_on_an_earlier_leader_epoch_is_ignored(),
    "stopping-member-joins": lambda path: (
        of_controllers.test_a_dead_or_stopping_broker_cannot_join_the_in_sync_set()
    ),
    "proposal-overtaken": lambda path: (
        of_proposals.test_an_undecided_proposal_does_not_replace_a_later_one_whose_request_fails(
            of_proposals.Scene()
        )
    ),
    "own-epoch-end-overlooked": lambda path: (
        of_followers.test_a_follower_whose_part_of_an_epoch_ends_earlier_truncates_to_its_own_end()
    ),
    "failed-disk-forgotten": lambda path: (
        of_elections.test_the_election_waits_for_a_failed_disk_if_the_last_member_lost_records_after_it(False)
    ),
    "unclean-member-trusted": lambda path: of_elections.test_a_new_controller_asks_again(),
    "last-leader-preferred": _simulated(
        1, of_last_replicas.test_the_longest_log_leads_after_all_lost_power_and_came_back_at_once
    ),
    "added-partition-unreserved": _simulated(
        5, of_grown_topics.test_nobody_else_writes_to_an_added_partition_while_the_owner_has_the_topic
    ),
    "names-unloaded": lambda path: (
        of_handovers.test_owners_and_waiters_keep_their_places_in_a_new_epoch_of_their_broker(
            of_handovers.coordinating_world(path), of_handovers.NAME, NO_PARTITION, of_handovers.OFFSETS
        )
    ),
    "lost-owner-commits": lambda path: of_commits.test_an_owner_that_has_lost_its_partition_commits_nothing(
        of_commits.coordinator(path)
    ),
    "request-before-handshake": lambda path: of_sasl.test_anything_else_closes_the_connection(
        [of_gates.encoded(of_gates.HEARTBEAT)]
    ),
    "request-while-exchanging": lambda path: of_sasl.test_anything_else_closes_the_connection(
        [
            of_gates.encoded(SaslHandshakeRequest(mechanism="PLAIN")),
            of_gates.encoded(of_gates.HEARTBEAT),
        ]
    ),
    "any-scram-proof-taken": lambda path: of_sasl.test_kafkas_texts_tell_nothing_about_users(),
    "decoy-admitted": lambda path: of_sasl.test_kafkas_texts_tell_nothing_about_users(),
    "scram-nonce-reused": lambda path: of_sasl.test_a_proof_cannot_be_replayed(),
    "scram-header-forgotten": lambda path: of_sasl.test_a_proof_must_repeat_the_header_of_the_first_message(),
    "salts-tell-users": lambda path: (
        of_sasl.test_a_name_without_a_user_gets_the_same_salt_each_time_and_on_every_broker()
    ),
    "principal-changes": lambda path: of_sasl.test_the_principal_does_not_change(),
    "session-never-ends": lambda path: of_sasl.test_a_session_ends_unless_the_client_authenticates_again(),
    "login-takes-for-ever": lambda path: of_sasl.test_the_time_to_authenticate_is_bounded(),
    "broker-user-everywhere": lambda path: (
        of_sasl.test_a_brokers_user_at_the_brokers_listener_counts_as_a_broker(
            "CLIENTS", "broker", "secret", is_broker=False
        )
    ),
    "every-user-a-broker": lambda path: (
        of_sasl.test_a_brokers_user_at_the_brokers_listener_counts_as_a_broker(
            "BROKERS", "alice", "hers", is_broker=False
        )
    ),
    "credential-replaces-quotas": lambda path: (
        of_users.test_credentials_and_quotas_of_a_user_stand_side_by_side(of_users.World())
    ),
    "credential-counts-as-quota": lambda path: (
        of_users.test_a_user_with_a_credential_alone_takes_no_place_of_a_quota(of_users.World())
    ),
    "revoked-login-stays": lambda path: of_logins.test_a_removed_user_is_gone_within_the_bound(
        ScramMechanism.SHA_256
    ),
    "revoked-login-admitted": lambda path: (
        of_logins.test_who_has_begun_with_the_old_password_does_not_get_in_with_it()
    ),
    "severed-login-answered": lambda path: of_logins.test_a_request_that_waits_is_not_answered_any_more(),
    "revoked-fetch-waits": _with_rules(of_revocations.TestFetches().test_a_waiting_fetch_ends_with_the_error),
    "revoked-session-silent": _with_rules(
        of_revocations.TestFetches().test_a_session_tells_of_a_partition_that_nothing_has_stirred
    ),
    "revoked-records-given": _with_rules(
        of_revocations.TestFetches().test_records_that_come_before_the_check_are_not_given
    ),
    "usual-fetch-unjudged": _with_rules(
        of_revocations.TestFetches().test_a_fetch_that_is_answered_at_once_is_judged_by_the_rules_of_the_moment
    ),
    "fetch-unjudged": _with_rules(
        of_revocations.TestFetches().test_a_fetch_that_is_answered_at_once_is_judged_by_the_rules_of_the_moment
    ),
    "revoked-owner-stays": _with_rules(
        lambda world, rules: of_revocations.TestOwnership().test_an_owner_without_the_right_owns_no_more(
            world, rules, Access.WRITE, (of_revocations.WRITE, of_revocations.TOPIC)
        )
    ),
    "revoked-claim-waits": _with_rules(
        of_revocations.TestOwnership().test_a_claim_that_waits_ends_with_its_connection
    ),
    "grant-of-any-principal": lambda path: of_principals.test_a_grant_cannot_be_resumed_by_another_principal(
        of_principals.owning_world(path)
    ),
    "owner-id-borrowed": lambda path: of_principals.test_an_owner_id_cannot_be_claimed_by_another_principal(
        of_principals.owning_world(path), 5
    ),
    "client-id-believed": lambda path: (
        of_principals.test_a_client_id_that_an_owner_has_bound_counts_for_its_principal_alone(
            of_principals.owning_world(path), {"writer_client_id": "loader"}, "eve", may_write=False
        )
    ),
    "quota-of-another-user": lambda path: (
        of_precedence.test_nobody_uses_up_the_quota_of_another_user_who_has_the_same_client_id(None)
    ),
    "few-iterations-accepted": lambda path: of_scram.test_a_caller_refuses_fewer_iterations_than_4096(),
    "orders-of-clients": lambda path: of_dispatch.test_a_client_gets_an_error_for_what_is_for_brokers(),
    "long-orders-of-clients": lambda path: (
        of_dispatch.test_a_client_has_no_more_elements_for_a_request_that_is_for_brokers()
    ),
    "posing-reader-believed": of_trust.test_a_fetch_with_a_replica_id_is_a_brokers_only,
    "posing-asker-believed": of_trust.test_offsets_for_a_replica_are_a_brokers_only,
    "posing-epochs-believed": of_trust.test_epochs_for_a_replica_are_a_brokers_only,
    "every-listener-trusted": lambda path: (
        of_trust.test_only_connections_to_trusted_listeners_count_as_brokers()
    ),
    "exempt-by-name": (
        of_trust.test_a_name_frees_from_quotas_only_where_brokers_have_no_listener_of_their_own
    ),
    "any-proof-taken": lambda path: of_handshake.test_a_connection_has_one_attempt(),
    "many-attempts": lambda path: of_handshake.test_a_connection_has_one_attempt(),
    "answerer-unproven": lambda path: of_handshake.test_a_broker_that_cannot_prove_itself_gets_no_requests(),
    "proof-reflected": lambda path: of_handshake.test_a_broker_that_cannot_prove_itself_gets_no_requests(),
    "proof-replayed": lambda path: (
        of_handshake.test_a_proof_that_was_overheard_is_worth_nothing_on_another_connection()
    ),
    "strangers-stay": lambda path: of_listeners.test_the_oldest_connection_that_is_silent_goes_first(),
    "busy-connection-closed": lambda path: of_listeners.test_a_connection_in_use_does_not_go(),
    "silent-connection-outlives": lambda path: (
        of_listeners.test_the_oldest_connection_that_is_silent_goes_first()
    ),
    "broker-closed-for-others": lambda path: of_listeners.test_connections_are_kept_for_brokers(),
    "no-place-for-brokers": lambda path: of_listeners.test_connections_are_kept_for_brokers(),
    "address-takes-all": lambda path: of_listeners.test_one_address_leaves_half_of_all_to_others(),
    "session-closed-by-client": lambda path: (
        of_sessions.test_no_consumer_uses_or_closes_the_session_of_a_follower()
    ),
    "commit-checked-once": _commit_under_check,
    "look-at-readers-once": _former_member_fetches,
    "attach-behind-fetch": lambda path: (
        of_members.test_an_attachment_does_not_wait_behind_a_fetch_of_its_connection(of_members.Leader(path))
    ),
    "read-without-lease": lambda path: of_leases.test_the_single_reader_gets_nothing(
        of_leases.leading_world(path)
    ),
    "end-of-replaced-leader": lambda path: (
        of_offsets.test_a_lease_that_ends_before_a_mismatch_is_answered_withdraws_it(
            of_offsets.world_in(path)
        )
    ),
    "deleted-topic-meant": lambda path: of_offsets.test_a_condition_names_the_topic_that_it_means(
        of_offsets.world_in(path)
    ),
    "refusal-forgotten": lambda path: (
        of_offsets.test_the_first_mismatch_refuses_later_conditional_batches_in_flight(
            of_offsets.world_in(path)
        )
    ),
    "writes-before-orders": _simulated(
        3,
        lambda world: (
            of_deciders.test_a_replaced_broker_that_has_registered_again_does_not_say_where_the_log_ends(
                world, reconnects=True
            )
        ),
    ),
    "acknowledged-alone-without-lease": _simulated(
        5, of_outages_in_sim.test_a_leader_alone_in_sync_that_was_replaced_uncleanly_acknowledges_nothing
    ),
    "writers-kept-without-followers": _simulated(
        5, of_outages_in_sim.test_writers_leave_a_leader_whose_followers_have_left
    ),
    "group-read-unproven": _simulated(
        5, of_outages_in_sim.test_a_coordinator_that_was_replaced_returns_no_offset
    ),
    "own-look-up-believed": lambda path: (
        of_exclusive.test_a_waiter_whose_broker_was_cut_off_and_replaced_asks_another_one(
            of_exclusive.cluster_of_two()
        )
    ),
    "place-of-replaced-broker-lost": lambda path: (
        of_exclusive.test_a_waiter_keeps_its_place_before_a_newcomer_that_asks_the_next_broker_first(
            of_exclusive.cluster_of_two()
        )
    ),
    "proof-by-earlier-fetch": lambda path: (
        of_group_offsets.test_without_its_lease_a_coordinator_answers_what_its_followers_prove(
            of_group_offsets.replicated_on(path)
        )
    ),
    "record-count-believed": lambda path: of_poison.test_a_batch_that_nobody_could_read_is_refused(
        path, "too many records", {}
    ),
    "bomb-inflated": lambda path: _with_patches(
        lambda patches: of_poison.test_a_bomb_is_refused_whatever_the_topic_allows(
            path, patches, Compression.ZSTD
        )
    ),
    "largest-timestamp-believed": lambda path: (
        of_poison.test_a_wrong_largest_timestamp_is_corrected_as_in_kafka(path, START_MS - 7)
    ),
    "found-in-cut-log": lambda path: (
        of_time_search.test_a_record_that_is_cut_off_after_it_was_found_is_not_answered()
    ),
    "searches-all-at-once": lambda path: (
        of_time_look_ups.test_pipelined_look_ups_are_searched_for_one_at_a_time(path)
    ),
    "budget-ignored": lambda path: of_budgets.test_jobs_wait_until_there_is_room_and_keep_their_order(),
    "skipped-in-silence": lambda path: of_consumers.pass_over_damage(of_consumers.cluster_in_memory(), [1]),
    "held-again-behind-all": lambda path: (
        of_held_requests.test_a_request_that_has_to_wait_once_more_keeps_its_place()
    ),
    "proof-by-other-epoch": lambda path: (
        of_data_path.TestAcknowledgedByAll().test_a_follower_that_has_heard_of_another_leader_epoch_proves_nothing(
            of_conditions.World(path)
        )
    ),
    "lease-by-read-of-member": lambda path: of_own_leases.test_an_ensemble_is_asked_by_writes(
        of_own_leases.Holder()
    ),
    "lease-by-read-of-former-loner": lambda path: (
        of_own_leases.test_a_server_that_runs_alone_no_longer_is_asked_by_writes(of_own_leases.Holder())
    ),
    "orders-of-ended-registration": lambda path: (
        of_outages.test_an_order_is_dropped_if_the_broker_registers_again_while_it_is_prepared(
            of_outages.Standing(path)
        )
    ),
    "early-orders-missed": lambda path: (
        of_outages.test_orders_that_come_before_the_broker_knows_that_it_is_registered_count(
            of_outages.Standing(path)
        )
    ),
    "confirms-before-orders": _simulated(
        3, of_deciders.test_a_replaced_broker_that_has_registered_again_waits_for_the_controllers_word
    ),
    "moved-without-yielding": _simulated(
        3,
        lambda world: (
            of_deciders.test_a_leader_that_the_controller_cannot_reach_is_not_replaced_while_it_is_registered(
                world, of_deciders.Story.elect
            )
        ),
    ),
    "fence-before-followed": _simulated(
        3, of_successions.test_no_fence_lies_before_records_that_only_the_next_leader_has
    ),
    "fence-written-before-followed": _simulated(
        3, of_successions.test_no_fence_lies_before_records_that_only_the_next_leader_has
    ),
    "answered-owner-not-pinged": _pause_answered_owner,
    "settled-fence-left-out": lambda path: (
        of_fences.test_case_2_a_settled_fence_stays_in_the_record_that_a_new_leader_writes(Machine())
    ),
    "known-fence-raised": lambda path: (
        of_fences.test_case_2_a_record_that_is_loaded_again_raises_no_fence_that_an_owner_knows(
            Machine(), is_attached=True
        )
    ),
    "stranger-before-written": lambda path: _with_stranger(
        path, of_strangers.test_a_strangers_append_lands_only_once_the_end_of_the_grant_is_durable
    ),
    "severed-reader-answered": lambda path: _wait_for_records(path, "one partition"),
    "foreign-fetch-ends-nothing": lambda path: (
        of_strangers.test_a_foreign_fetch_is_served_only_once_the_end_is_durable(
            of_leases.leading_world(path)
        )
    ),
    "fence-judged-without-lease": _simulated(3, of_deciders.test_a_replaced_broker_judges_no_fence),
    "guard-judged-without-right": lambda path: (
        of_offsets.test_a_guard_is_not_judged_by_a_broker_that_may_have_been_replaced(
            of_offsets.world_in(path)
        )
    ),
    **rare_transactions.SCENARIOS,
    **rare_moves.SCENARIOS,
    **rare_appends.SCENARIOS,
}


OF_COMPILED_CALLS = {"usual-fetch-unjudged"}
"""Bugs of how a compiled call is built: in Python alone there is no such call, so they change nothing."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fixed_scenario_catches_the_bug(tmp_path: Path, name: str) -> None:
    """By a failed check of the scenario, or by one of the broker, which then refuses to serve what is
    wrong."""
    if name in OF_COMPILED_CALLS and not usual_fetch.is_compiled():
        pytest.skip("broker/replication/_usual_fetch.c was not compiled, or HOLDFAST_PURE_PYTHON is set")
    scenario, mutation = SCENARIOS[name], by_name(name)
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    sound.mkdir()
    broken.mkdir()
    scenario(sound)
    with mutated(mutation), pytest.raises((AssertionError, BrokerError)):
        scenario(broken)


@pytest.mark.parametrize("form", of_enforcement.WAITING_FORMS)
def test_a_severed_reader_that_is_answered_is_caught_however_it_waits(tmp_path: Path, form: str) -> None:
    with mutated(by_name("severed-reader-answered")), pytest.raises(AssertionError):
        _wait_for_records(tmp_path, form)


@pytest.mark.parametrize("mutation", [*MUTATIONS, *RARE], ids=lambda mutation: mutation.name)
def test_each_known_bug_fits_the_code_that_it_replaces(mutation: Mutation) -> None:
    """A function that takes other arguments than the one in its place fails in another way than the bug."""
    for where, name, replacement in mutation.patches():
        original = getattr(where, name)
        if inspect.isroutine(original):
            _call_as(inspect.signature(original), inspect.signature(replacement))


def _call_as(original: inspect.Signature, replacement: inspect.Signature) -> None:
    """Raise TypeError if the replacement cannot be called with every argument of the original."""
    by_name = [each for each in original.parameters.values() if each.kind is each.KEYWORD_ONLY]
    by_place = [
        each
        for each in original.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    replacement.bind(*by_place, **{each.name: each for each in by_name})


def test_each_known_bug_is_put_back_either_by_campaigns_or_in_a_fixed_scenario() -> None:
    in_campaigns, in_scenarios = _names(MUTATIONS), _names(RARE)
    assert sorted(in_campaigns + in_scenarios) == sorted({*_names(_known_bugs())})
    assert set(in_scenarios) <= set(SCENARIOS) <= {*in_campaigns, *in_scenarios}


def _names(mutations: Iterable[Mutation]) -> list[str]:
    return [mutation.name for mutation in mutations]


def _known_bugs() -> Iterator[Mutation]:
    """Every mutation in the modules of `tests.sim.mutants`, alone or in a tuple."""
    for module in pkgutil.iter_modules(mutants.__path__):
        for value in vars(importlib.import_module(f"{mutants.__name__}.{module.name}")).values():
            if isinstance(value, Mutation):
                yield value
            elif isinstance(value, tuple):
                yield from (each for each in value if isinstance(each, Mutation))
