"""Bugs of the short way in Python that appends the requests of one partition.

It is one function. Each bug is a change of its text, so that the rest stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.leadership import Leadership
from tests.sim.mutation import Mutation, Patch

_APPEND = "    replicas.append(appends, acks, origin)\n"


def _changed(text: str, replacement: str) -> Callable[[], Sequence[Patch]]:
    """The short way with another text, taken by all requests, as in a broker without anything compiled."""

    def patches() -> Sequence[Patch]:
        source = inspect.getsource(usual_append.append_in_python)
        if source.count(text) != 1:
            raise ValueError(f"the short way has this text {source.count(text)} times, not once: {text}")
        names = {**vars(usual_append), "without_sequences": _without_sequences, "leads": _leads}
        exec(compile(source.replace(text, replacement), __file__, "exec"), names)
        mutant = names["append_in_python"]
        return [
            (usual_append, "append_in_python", mutant),
            (usual_append, "_in_python", mutant),
            (usual_append, "_compiled", None),
        ]

    return patches


@contextmanager
def _without_sequences() -> Iterator[None]:
    with mock.patch.object(ProducerStates, "check", lambda self, headers: None):
        yield


@contextmanager
def _leads() -> Iterator[None]:
    """Meanwhile this broker counts as the leader of what it follows."""
    prepare = Append.prepare

    def prepared(self: Append, partition: Any, acks: int, date_ms: int) -> None:
        role = partition.role
        if not isinstance(role, Leadership):
            partition.role = mock.Mock(spec=Leadership, isr=partition.replicas)
        prepare(self, partition, acks, date_ms)
        partition.role = role

    with mock.patch.object(Append, "prepare", prepared):
        yield


RARE: tuple[Mutation, ...] = (
    Mutation(
        "short-append-overtakes",
        "a request lands before those of its client that are held",
        _changed("version < _FIRST_VERSION or queues", "version < _FIRST_VERSION"),
    ),
    Mutation(
        "short-append-unanswerable",
        "a request that wants no answer is answered",
        _changed("acks not in (ACKS_LEADER, ACKS_ALL) or ", ""),
    ),
    Mutation(
        "short-append-decompresses",
        "the reactor decompresses a large batch, or refuses it",
        _changed("attributes_of(records) & _UNUSUAL", "attributes_of(records) & TRANSACTIONAL"),
    ),
    Mutation(
        "short-append-unverified",
        "nobody asks the coordinator whether a batch's transaction is open",
        _changed("attributes_of(records) & _UNUSUAL", "attributes_of(records) & COMPRESSION_MASK"),
    ),
    Mutation(
        "short-append-owner-unasked",
        "a writer that should wait for the end of the owner's grant is refused",
        _changed("partition.admission is not None or ", ""),
    ),
    Mutation(
        "short-append-of-any-size",
        "a batch too large to be checked on the reactor is refused",
        _changed(" or len(records) > INLINE_BYTES_MAX", ""),
    ),
    Mutation(
        "short-append-without-right",
        "a client writes to a topic to which it may not write",
        _changed("if may_write is not None and not may_write(origin, topic):", "if False:"),
    ),
    Mutation(
        "short-append-elsewhere",
        "the batch lands in the topic's first partition",
        _changed("append = Append(topic, index, records)", "append = Append(topic, 0, records)"),
    ),
    Mutation(
        "short-append-too-few-in-sync",
        "acks=all is carried out by fewer replicas than min.insync.replicas",
        _changed("replicas.append(appends, acks, origin)", "replicas.append(appends, ACKS_LEADER, origin)"),
    ),
    Mutation(
        "short-append-by-anybody",
        "nobody asks whether a producer's id was handed out",
        _changed("replicas.append(appends, acks, origin)", "replicas.append(appends, acks, None)"),
    ),
    Mutation(
        "short-append-sequence-unchecked",
        "a batch is appended twice, or out of its producer's order",
        _changed(_APPEND, f"    with without_sequences():\n    {_APPEND}"),
    ),
    Mutation(
        "short-append-by-a-follower",
        "a follower appends what clients send",
        _changed(_APPEND, f"    with leads():\n    {_APPEND}"),
    ),
    Mutation(
        "short-append-acknowledged-before-commit",
        "acks=all is answered although the record is not committed",
        _changed("replicas.is_settled(append, acks) if acks == ACKS_ALL", "True if acks == ACKS_ALL"),
    ),
    Mutation(
        "short-append-acknowledged-before-flush",
        "acks=1 is answered before the record is durable, against flush.before.ack",
        _changed("else append.is_settled(acks)\n", "else True\n"),
    ),
    Mutation(
        "short-append-error-raised",
        "a batch that was refused is answered with an unknown error",
        _changed("result is None or append.error is not None or ", ""),
    ),
    Mutation(
        "short-append-error-acknowledged",
        "a batch that landed before too few replicas were in sync is acknowledged",
        _changed("append.error is not None or ", ""),
    ),
    Mutation(
        "short-append-last-offset-told",
        "the answer names the last record's offset in place of the first's",
        _changed("first_offset, _, append_time_ms", "_, first_offset, append_time_ms"),
    ),
    Mutation(
        "short-append-log-start-untold",
        "the answer says that no record was ever deleted",
        _changed("append_time_ms, log_start_offset\n    return", "append_time_ms, 0\n    return"),
    ),
    Mutation(
        "short-append-answer-swapped",
        "the answer carries another correlation id",
        _changed("(version, correlation_id, row)", "(version, correlation_id + 1, row)"),
    ),
)
"""Two checks are not among them, because `RightToAcknowledge` refuses the same again: who asks `Replicas`
whether an append with acks=all is settled, and that a condition which held is left to the handler."""
