"""Fetch (key 1): batches from given offsets on, as soon as there are `min_bytes` of them or `max_wait_ms` is
over.

Consumers see what is below the high watermark; followers (a replica id of 0 or more) see all, and what they
ask for tells the leader how far they are. Records leave as slices of the log's files and are never read here.

Versions: up to 12 topics go by name, from 13 on by id (KIP-516); from 12 on a reader that names the epoch it
read last is told where its log parts from the leader's (KIP-595); from 15 on a follower's id travels in a
tagged field. Fetch sessions (KIP-227, version 7) are not kept: every answer has session id 0, which tells the
client to name all partitions each time, and is complete.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from broker.call import Call, Handler
from broker.metadata import MetadataCache
from broker.network.connection import Connection
from broker.replication.partition import PartitionRead
from broker.replication.reads import Read, ReadLimits, cold_slices, fetch, warm
from broker.replication.replicas import Replicas
from broker.replication.waiting import Parked
from broker.workers import Workers
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)

_log = logging.getLogger(__name__)

_FULL_FETCH_EPOCHS = (-1, 0)
_FIRST_VERSION_WITH_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_LEADER = 12
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(eq=False)
class FetchHandler(Handler[FetchRequest, FetchResponse]):
    """`max_bytes` bounds every answer (`fetch.max.bytes`)."""

    request = FetchRequest
    replicas: Replicas
    metadata: MetadataCache
    workers: Workers
    max_bytes: int
    _waiting_followers: dict[int, Parked] = field(init=False, default_factory=dict)
    """By connection, the fetch of a follower that waits."""

    def handle(self, call: Call, request: FetchRequest) -> None:
        if request.session_epoch not in _FULL_FETCH_EPOCHS:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        with_state = call.version >= _FIRST_VERSION_WITH_REPLICA_STATE
        replica_id = request.replica_state.replica_id if with_state else request.replica_id
        broker_epoch = request.replica_state.replica_epoch
        topics = [
            (
                topic,
                [self._read(call, topic, wanted, replica_id, broker_epoch) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
        reads = [read for _, of_topic in topics for read in of_topic]
        max_bytes = min(max(request.max_bytes, 0), self.max_bytes)
        limits = ReadLimits(min(request.min_bytes, max_bytes), max_bytes, request.max_wait_ms)

        if replica_id >= 0 and call.connection is not None:
            # Answers leave in order: this one's would wait for an earlier fetch that waits for records. A
            # follower that asks again, for other partitions, is not to be kept waiting for them.
            earlier = self._waiting_followers.pop(call.connection.id, None)
            if earlier is not None:
                earlier.expire()

        def forget(connection: Connection) -> None:
            self._waiting_followers.pop(connection.id, None)
            if parked is not None:
                parked.cancel()

        def answer() -> None:
            if call.connection is not None:
                call.connection.remove_close_callback(forget)
                if parked is not None and self._waiting_followers.get(call.connection.id) is parked:
                    del self._waiting_followers[call.connection.id]
            cold = cold_slices(reads)
            if not cold:
                call.answer(self._response(call, topics))
                return
            warmed = self.workers.run(warm, cold)
            warmed.addErrback(lambda failure: _log.error("Reading ahead failed: %s", failure.value))
            warmed.addCallback(lambda _: call.answer(self._response(call, topics)))

        parked: Parked | None = None
        parked = fetch(self.replicas, reads, limits, replica_id, answer)
        if parked is not None and not parked.is_over and call.connection is not None:
            call.connection.add_close_callback(forget)
            if replica_id >= 0:
                self._waiting_followers[call.connection.id] = parked

    def _read(
        self, call: Call, topic: FetchTopic, wanted: FetchPartition, replica_id: int, broker_epoch: int
    ) -> Read:
        name: str | None = topic.topic
        if call.version >= _FIRST_VERSION_WITH_IDS:
            name = self.metadata.name_of(topic.topic_id)
            if name is None:
                return Read("", wanted, BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
        read = Read(name or "", wanted)
        if replica_id >= 0:
            try:
                self.replicas.record_fetch(read.topic, wanted, replica_id, broker_epoch)
            except BrokerError as error:
                read.error = error
        return read

    def _response(self, call: Call, topics: list[tuple[FetchTopic, list[Read]]]) -> FetchResponse:
        return FetchResponse(
            throttle_time_ms=0,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self._partition(call, read) for read in reads],
                )
                for topic, reads in topics
            ],
        )

    def _partition(self, call: Call, read: Read) -> PartitionData:
        if read.error is not None:
            return self._failed_partition(call, read, read.error)
        assert read.read is not None
        found: PartitionRead = read.read
        data = PartitionData(
            partition_index=read.wanted.partition,
            error_code=0,
            high_watermark=found.high_watermark,
            last_stable_offset=found.high_watermark,
            log_start_offset=found.log_start_offset,
            records=b"" if found.records is None else found.records,
        )
        if found.diverging is not None:
            epoch, end_offset = found.diverging
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data

    def _failed_partition(self, call: Call, read: Read, error: BrokerError) -> PartitionData:
        data = PartitionData(
            partition_index=read.wanted.partition, error_code=error.code, high_watermark=-1, records=b""
        )
        if call.version >= _FIRST_VERSION_WITH_LEADER and error.code in _MOVED:
            known = self.metadata.partition(read.topic, read.wanted.partition)
            if known is not None:
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=known.leader, leader_epoch=known.leader_epoch
                )
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower whose log does not join on to this one begins anew from here.
            partition = self.replicas.find(read.topic, read.wanted.partition)
            if partition is not None:
                data.log_start_offset = partition.log.log_start_offset
        return data

    def failed(self, call: Call, request: FetchRequest, error: BrokerError) -> FetchResponse | None:
        if call.version >= 7:
            return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])
        return FetchResponse(
            throttle_time_ms=0,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._failed_partition(call, Read(topic.topic, wanted), error)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
