"""Which functions compiled code does the work of, so that a bug put back into one of them would never run.

The broker carries out usual requests in compiled calls (`broker/replication/usual_fetch.py`,
`usual_append.py`, and those of the log). Beside each of them is the Python that does the same. A mutation
that replaces a function of that Python has an effect only where the compiled call leaves the work to it:

- *Replaced*: the compiled call has its own form of the function. While such a mutation runs, the compiled
  call is switched off, and Python does everything.
- *Asked*: the compiled call calls the function, or leaves to Python whatever the function refuses or
  changes, so a mutation that loosens or breaks the function is met there. The compiled call stays on.

A mutation of a function that is in neither list is refused by `tests/sim/test_stand_ins.py`: whoever writes
it has to look which of both is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from holdfast_log.broker.handlers import fetch as fetch_handler
from holdfast_log.broker.handlers import produce as produce_handler
from holdfast_log.broker.log import (
    append,
    epochs,
    index,
    known_reads,
    log,
    preparation,
    producer_entry,
    producer_state,
    reading,
    segment,
    segment_indexes,
)
from holdfast_log.broker.replication import (
    appends,
    deadlines,
    fetch_sessions,
    fetches,
    one_fetch,
    partition,
    plain_fetch,
    reads,
    replicas,
    session_fetch,
    several_fetch,
    traffic,
    usual_append,
    usual_fetch,
    waiting,
)
from holdfast_log.broker.requests import dispatch

Patch: TypeAlias = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and the attribute's new value."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A compiled call: the switches that have Python do everything, and the modules of the Python beside it.

    `replaced` and `asked` name functions and constants of these modules, as the module's documentation says;
    those of a class after its name and a dot. A name with a star at its end means all that begin like it.
    """

    name: str
    switches: tuple[Patch, ...]
    modules: tuple[ModuleType, ...]
    replaced: frozenset[str]
    asked: frozenset[str]

    def has(self, patch: Patch) -> bool:
        """Whether the patch changes something of the Python beside the call."""
        return _module_of(patch) in {module.__name__ for module in self.modules}

    def replaces(self, patch: Patch) -> bool:
        return self.has(patch) and _is_in(patch, self.replaced)

    def knows(self, patch: Patch) -> bool:
        """Whether it is known what the call does about the patched function."""
        return _is_in(patch, self.replaced | self.asked)


_FETCH_MODULES = (
    fetch_handler, fetches, one_fetch, plain_fetch, session_fetch, fetch_sessions, reads, waiting, deadlines,
    partition, traffic,
)  # fmt: skip
_FETCH_REPLACED = frozenset(
    {
        "Partition.read", "Partition.shared", "OneFetch.*", "SessionFetch.*", "SessionPartition.*",
        "FetchSessions.use", "FetchSessions.name", "FetchHandler.handle", "Fetches.begin",
        "Fetches.begin_one", "Fetches.give_one", "Fetches._session", "Fetches._locate",
        "Fetches._read_by_id", "Waiting.add",
        "Waiting.park", "Waiting.remove", "Deadlines.*", "TopicTraffic.*", "counted_bytes", "share",
        "read_all", "read_one", "SMALL_BYTES", "MAX_WAIT_MS",
    }
)  # fmt: skip
_OF_SEVERAL = frozenset(
    {"PlainFetch.*", "copy_small_records", "READS_MAX", "must_wait", "Fetches._check_size"}
)
_FETCH_ASKED = frozenset(
    {
        # Of followers, and of clients whose rights are limited: those fetches are left to Python.
        "check_replica",
        "_is_denied",
        "FetchHandler.judged_shortcut",
        "FetchHandler._may_read",
        "Partition._divergence",
        "Partition.record_fetch",
        "FetchSessions.asked_after_ms",
        "_check_fetched_epoch",
        # Called, or around the call.
        "Fetches.judged_again",
        "FetchSessions.close",
        "Watchers.sleep",
        "OWNED_MAX",
        # Partitions with open transactions, or with aborted ones for a reader of committed records,
        # are left to Python.
        "Partition.last_stable_offset",
        "with_aborted",
        # Another leader epoch than the partition's is left to Python.
        "Partition.check_leader_epoch",
        # Nothing of a fetch.
        "Partition._drop_impossible_epochs",
        "Partition._is_unlike_a_deleted_record",
        "Partition.advance_high_watermark",
        "Partition.follow",
        "Partition.has_successor",
        "Partition.lead",
        "Partition.replace_log",
        "Partition.restore_high_watermark",
        "Partition.truncate_to",
    }
)

STAND_INS = (
    StandIn(
        "_usual_fetch", ((usual_fetch, "_compiled", None),), _FETCH_MODULES, _FETCH_REPLACED, _FETCH_ASKED
    ),
    StandIn(
        "_several_fetch",
        ((several_fetch, "_compiled", None),),
        _FETCH_MODULES,
        _FETCH_REPLACED | _OF_SEVERAL,
        _FETCH_ASKED,
    ),
    StandIn(
        "_usual_dispatch",
        ((dispatch, "_compiled", None),),
        (dispatch,),
        frozenset({"Dispatcher.dispatch", "Dispatcher.note_time"}),
        # What has no shortcut is left to Python.
        frozenset({"Dispatcher._add_routes", "ForBrokers.*", "long_rows", "_may_be_large"}),
    ),
    StandIn(
        "_usual_append",
        ((usual_append, "_compiled", None), (usual_append, "_in_python", None)),
        (
            produce_handler, appends, replicas, partition, preparation, append, log, producer_entry,
            producer_state, epochs, segment, segment_indexes, traffic,
        ),
        frozenset(
            {
                "ProduceHandler.*", "Append.admit", "Append.append", "Append._*", "Replicas.append",
                "Replicas.grown_unwatched", "Partition.advance_high_watermark", "prepare_append",
                "Log.append_prepared", "Log.write", "Segment.append", "Segment._note_appended",
                "Segment.has_room", "SegmentIndexes.add", "TopicTraffic.*",
            }
        ),
        frozenset(
            {
                # What they refuse is left to Python. What is not settled at once is settled there.
                "Append.prepare", "Append.is_settled", "check_keys", "set_max_timestamp",
                # Called.
                "ProducerStates.check", "ProducerStates.update", "check_sequence", "check_inside",
                "REMEMBERED_BATCHES", "_SEQUENCE_MASK",
                # Of requests with a transactional id, and of markers: they are left to Python.
                "ProducerStates.check_marker", "ProducerStates.last_marker_of", "check_same_transaction",
                # A broker that stops, append ids and the first batch of a leader epoch are left to Python.
                "Replicas.begin_hand_over", "named_append_of", "LeaderEpochs.begin",
                # Nothing of a produce request.
                "_check_fetched_epoch", "is_pressure", "write_begun_epochs", "Log.may_have_epoch", "Log.read",
                "ProducerStates.clear", "ProducerStates.forget_producers",
            }
        ),
    ),
    StandIn(
        "_segment_append",
        ((log, "_compiled", None),),
        (segment, segment_indexes, index),
        frozenset({"Segment.append", "Segment._note_appended", "Segment.has_room", "SegmentIndexes.add"}),
        frozenset(
            {
                # Reads, recovery and truncation. A new segment is begun in Python.
                "Segment._remember", "Segment.cut", "Segment.extent", "Segment.header_at",
                "SegmentIndexes.create", "OffsetIndex.is_sound", "TimeIndex.is_sound",
            }
        ),
    ),
    StandIn(
        "_known_reads",
        ((log, "_again", None),),
        (known_reads, reading),
        frozenset({"KnownRead.*", "KnownReads.find", "Reading._known", "Reading._check"}),
        # Headers that have to be checked are left to Python.
        frozenset({"check_batches", "KnownReads.remember", "_CAPACITY"}),
    ),
)  # fmt: skip


def switches_for(patches: Sequence[Patch]) -> list[Patch]:
    """The patches that switch off every compiled call that stands in for a patched function."""
    found = [stand_in for stand_in in STAND_INS if any(map(stand_in.replaces, patches))]
    return [switch for stand_in in found for switch in stand_in.switches]


def unknown_of(patches: Iterable[Patch]) -> list[str]:
    """The patched functions beside a compiled call of which nobody has said what that call does."""
    return [
        f"{_module_of(patch)}: {_name_of(patch)}"
        for patch in patches
        if (beside := [each for each in STAND_INS if each.has(patch)])
        and not any(each.knows(patch) for each in beside)
    ]


def _module_of(patch: Patch) -> str:
    where = patch[0]
    return where.__name__ if isinstance(where, ModuleType) else str(getattr(where, "__module__", ""))


def _name_of(patch: Patch) -> str:
    where, attribute, _ = patch
    return attribute if isinstance(where, ModuleType) else f"{where.__qualname__}.{attribute}"


def _is_in(patch: Patch, names: frozenset[str]) -> bool:
    name = _name_of(patch)
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in names)
