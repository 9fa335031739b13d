"""One recorded append of a client, with the outcome that the producer reports."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.checker.calls import NO_GRANT, NO_OFFSET, AppendCall, Outcome
from holdfast_log.checker.recorder import Recorder
from holdfast_log.clients.errors import GuardElsewhereError, GuardMismatchError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.expectations import NO_GUARDS
from holdfast_log.protocol.errors import OffsetMismatchError
from holdfast_log.protocol.topic_partition import TopicPartition


def append(
    recorder: Recorder,
    client: str,
    producer: Producer | ExclusiveProducer,
    place: TopicPartition,
    values: tuple[str, ...],
    *,
    expected_offset: int = NO_OFFSET,
    guards: Mapping[TopicPartition, int] = NO_GUARDS,
    grant: int = NO_GRANT,
) -> AppendCall:
    """Append values and record the outcome. Returns the recorded call; raises what the producer raises, after
    recording that too. Without an expected offset there is one value."""
    messages = [Message(place.topic, value=value, partition=place.partition) for value in values]
    asked_s = recorder.now_s()

    def record(outcome: Outcome, offset: int = NO_OFFSET, next_offset: int = NO_OFFSET) -> AppendCall:
        call = AppendCall(
            client,
            *place,
            values,
            asked_s,
            recorder.now_s(),
            outcome,
            offset,
            expected_offset,
            next_offset,
            grant,
        )
        recorder.add(call)
        return call

    try:
        if expected_offset == NO_OFFSET:
            response = producer.send(*messages)
        else:
            response = producer.send_at(expected_offset, *messages, guards=guards)
        last = response.result().offset  # That of the last message.
        return record(Outcome.DONE, last - len(values) + 1)
    except OffsetMismatchError as mismatch:
        record(Outcome.REFUSED, next_offset=mismatch.next_offset)
        raise
    except (GuardMismatchError, GuardElsewhereError):
        record(Outcome.REFUSED)
        raise
    except Exception:
        record(Outcome.UNKNOWN)
        raise
