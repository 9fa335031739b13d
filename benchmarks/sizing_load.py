"""What `benchmarks.sizing` gives a broker to hold: records, connections, members of groups, transactions.

Everything is asked for on plain sockets, so that one process can be thousands of clients. A refusal is a
`LoadError`.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from benchmarks.load_error import LoadError
from benchmarks.raw_client import read_frame
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.describe_groups import DescribeGroupsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast_log.protocol.records import BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition

GROUP_MEMBERS = 10
"""Members of each group."""
RECORD_BYTES = 1000
_TIMEOUT_S = 120.0
_BATCH_PARTITIONS = 200
"""Partitions to which one request writes."""
_JOIN_VERSION, _SYNC_VERSION = 3, 1
_LONG_MS = 30 * 60 * 1000
_TRANSACTION_MS = 15 * 60 * 1000
_SUBSCRIPTION = bytes(40)
"""As long as a consumer's subscription to a topic."""
_PATIENCE_S = 60.0
_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""A coordinator is about to load its partition."""
_NO_LEADER_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""A partition has been created a moment ago."""

R = TypeVar("R", bound=Response)


class LoadConnection:
    """A connection on which requests are sent one at a time. With `context` it speaks TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def ask(self, request: Request[R], version: int | None = None) -> R:
        self.send(request, version)
        return self.answer(request, version)

    def send(self, request: Request[R], version: int | None = None) -> None:
        used = request.api.max_version if version is None else version
        self.socket.sendall(join_parts(encode_request(request, used, 1, "sizing")))

    def answer(self, request: Request[R], version: int | None = None) -> R:
        used = request.api.max_version if version is None else version
        return decode_response(type(request), used, read_frame(self.socket))

    def close(self) -> None:
        self.socket.close()


def connected(
    opened: ExitStack, address: tuple[str, int], count: int, context: ssl.SSLContext | None = None
) -> list[LoadConnection]:
    """Connections on which one request has been answered each."""
    callers = []
    for _ in range(count):
        caller = LoadConnection(address, context)
        opened.callback(caller.close)
        caller.ask(ApiVersionsRequest(client_software_name="sizing", client_software_version="1"))
        callers.append(caller)
    return callers


def write_to_each(caller: LoadConnection, partitions: Sequence[TopicPartition]) -> None:
    """Write a record to each partition."""
    batch = _batch()
    for some in _slices(partitions, _BATCH_PARTITIONS):
        _produce(caller, None, dict.fromkeys(some, batch))


def join_groups(callers: Sequence[LoadConnection], first: str) -> None:
    """Have each connection be a member of a group; `GROUP_MEMBERS` share one. All join within the time that a
    new group waits for its members."""
    groups = list(enumerate(_slices(callers, GROUP_MEMBERS)))
    _patiently(callers[0], FindCoordinatorRequest(key=first, key_type=0), 2, lambda found: found.error_code)
    for number, _ in groups:
        described = DescribeGroupsRequest(groups=[f"{first}-{number}"])
        _patiently(callers[0], described, 0, lambda found: found.groups[0].error_code)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)]
    joins = {
        number: JoinGroupRequest(
            group_id=f"{first}-{number}",
            session_timeout_ms=_LONG_MS,
            rebalance_timeout_ms=_LONG_MS,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        for number, _ in groups
    }
    for number, members in groups:
        for caller in members:
            caller.send(joins[number], _JOIN_VERSION)
    syncs: list[tuple[LoadConnection, SyncGroupRequest]] = []
    for number, members in groups:
        answers = [caller.answer(joins[number], _JOIN_VERSION) for caller in members]
        for caller, answer in zip(members, answers, strict=True):
            _check(answer.error_code, "JoinGroup")
            syncs.append((caller, _sync(f"{first}-{number}", answer.generation_id, answer.member_id, answer)))
    for caller, sync in syncs:
        caller.send(sync, _SYNC_VERSION)
    for caller, sync in syncs:
        _check(caller.answer(sync, _SYNC_VERSION).error_code, "SyncGroup")


def _sync(group: str, generation: int, member: str, joined: object) -> SyncGroupRequest:
    members = getattr(joined, "members", [])  # Only the leader gets any.
    assignments = [
        SyncGroupRequestAssignment(member_id=each.member_id, assignment=_SUBSCRIPTION) for each in members
    ]
    return SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, assignments=assignments
    )


def open_transactions(
    caller: LoadConnection, first: str, count: int, partitions: Sequence[TopicPartition]
) -> None:
    """Begin transactions of as many producers; each has written one record to one partition."""
    _patiently(caller, FindCoordinatorRequest(key=first, key_type=1), 2, lambda found: found.error_code)
    for number, (topic, partition) in zip(range(count), itertools.cycle(partitions), strict=False):
        name = f"{first}-{number}"
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TRANSACTION_MS)
        producer = _patiently(caller, init, 2, lambda found: found.error_code)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        (added,) = caller.ask(add, 3).results_by_topic_v3_and_below
        _check(added.results_by_partition[0].partition_error_code, "AddPartitionsToTxn")
        batch = _batch(producer.producer_id, producer.producer_epoch)
        _produce(caller, name, {TopicPartition(topic, partition): batch})


def _batch(producer_id: int | None = None, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, bytes(RECORD_BYTES))
    if producer_id is None:
        return bytes(builder.build())
    return bytes(
        builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    )


def _produce(
    caller: LoadConnection, transactional_id: str | None, batches: Mapping[TopicPartition, bytes]
) -> None:
    """Write a batch to each partition, again where it has no leader yet."""
    ends_s = time.monotonic() + _PATIENCE_S
    left = dict(batches)
    while left:
        topics: dict[str, list[PartitionProduceData]] = {}
        for (topic, number), batch in left.items():
            topics.setdefault(topic, []).append(PartitionProduceData(index=number, records=batch))
        data = [TopicProduceData(name=name, partition_data=of) for name, of in topics.items()]
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=60_000, topic_data=data
        )
        for written in caller.ask(request, 9).responses:
            for partition in written.partition_responses:
                code = partition.error_code
                if code not in _NO_LEADER_YET or time.monotonic() > ends_s:
                    _check(code, "Produce")
                    del left[TopicPartition(written.name, partition.index)]
        if left:
            time.sleep(0.1)


def _patiently(caller: LoadConnection, request: Request[R], version: int, code_of: Callable[[R], int]) -> R:
    """The answer, once the coordinator has been found and has loaded what it knows."""
    ends_s = time.monotonic() + _PATIENCE_S
    while True:
        answer = caller.ask(request, version)
        code = code_of(answer)
        if code not in _NOT_YET or time.monotonic() > ends_s:
            _check(code, request.api.name)
            return answer
        time.sleep(0.1)


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise LoadError(f"{what} was answered with {ErrorCode(error_code).name}")


T = TypeVar("T")


def _slices(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]
