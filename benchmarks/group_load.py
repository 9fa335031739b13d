"""A load of group members or commits for one broker: python -m benchmarks.group_load JOB.

Runs in its own process, so that its CPU time is not counted as the broker's. Every member has its own
connection, as in stock consumers. JOB is the JSON of a `GroupJob`; the last line printed is the JSON of a
`GroupRun`.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from benchmarks.results import LatencySummary, percentiles
from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment, encode_subscription
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast_log.protocol.topic_partition import TopicPartition

JOIN_VERSION = 3  # The last version in which a member may join without an id.
_SESSION_MS = 60_000
_CONNECTING_AT_ONCE = 50
_GROUPS_AT_ONCE = 100
_COMMIT_VERSION = 7
_OFFSET = struct.Struct(">q")
_MARK = 0x1122334455667788
"""Placeholder offset, located in an encoded commit to be replaced."""

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class GroupJob:
    """`kind` is heartbeats or commits. Heartbeats last `seconds`. With commits, each of `members` has a group
    of its own and one commit in flight, until `commits` are acknowledged."""

    kind: str
    host: str
    port: int
    topic: str
    groups: int
    members: int
    interval_ms: int = 3_000
    seconds: float = 0.0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class GroupRun:
    """`began` and `ended` are the start and end of the load, in seconds since the epoch."""

    requests: int
    errors: int
    began: float
    ended: float
    latency: LatencySummary


class Line(asyncio.Protocol):
    """One connection, with requests and responses in order."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: deque[Callable[[bytes], None]] = deque()
        self._transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= SIZE.size:
            (size,) = SIZE.unpack_from(self._received)
            if len(self._received) < SIZE.size + size:
                return
            frame = bytes(self._received[SIZE.size : SIZE.size + size])
            del self._received[: SIZE.size + size]
            self._waiting.popleft()(frame)

    def send(self, frame: bytes, answered: Callable[[bytes], None]) -> None:
        assert self._transport is not None
        self._waiting.append(answered)
        self._transport.write(frame)

    async def ask(self, request: Request[R], version: int) -> R:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.send(frame_of(request, version), answer.set_result)
        return decode_response(type(request), version, await answer)


def frame_of(request: Request[Any], version: int) -> bytes:
    return join_parts(encode_request(request, version, 0, "benchmark"))


async def connect(job: GroupJob, count: int) -> list[Line]:
    """Open `count` connections, a few at a time, because the broker's backlog is short."""
    loop = asyncio.get_running_loop()
    lines: list[Line] = []
    while len(lines) < count:
        made = [
            loop.create_connection(Line, job.host, job.port)
            for _ in range(min(_CONNECTING_AT_ONCE, count - len(lines)))
        ]
        lines += [line for _, line in await asyncio.gather(*made)]
    return lines


async def find(line: Line, group: str) -> None:
    """Wait until the broker coordinates a group."""
    for _ in range(100):
        answer = await line.ask(FindCoordinatorRequest(key=group), 1)
        if answer.error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("there is no coordinator")


# Heartbeats


@dataclass(slots=True)
class LoadMember:
    """A member that has joined."""

    line: Line
    heartbeat: bytes


async def become_members(job: GroupJob, group: str, lines: list[Line]) -> list[LoadMember]:
    """Join a group over each of `lines`, all at once, and wait for the assignment."""
    subscription = encode_subscription([job.topic])
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_SESSION_MS,
        rebalance_timeout_ms=_SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    joined = await asyncio.gather(*(line.ask(join, JOIN_VERSION) for line in lines))
    if any(answer.error_code for answer in joined):
        raise RuntimeError(f"{group}: a member was refused: {joined[0]}")
    assignments = [
        SyncGroupRequestAssignment(
            member_id=answer.member_id, assignment=encode_assignment([TopicPartition(job.topic, number)])
        )
        for number, answer in enumerate(joined)
    ]
    syncs = [
        SyncGroupRequest(
            group_id=group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=assignments if answer.members else [],
        )
        for answer in joined
    ]
    synced = await asyncio.gather(*(line.ask(sync, 2) for line, sync in zip(lines, syncs, strict=True)))
    if any(answer.error_code for answer in synced):
        raise RuntimeError(f"{group}: an assignment was refused: {synced[0]}")
    return [
        LoadMember(
            line,
            frame_of(
                HeartbeatRequest(
                    group_id=group, generation_id=answer.generation_id, member_id=answer.member_id
                ),
                2,
            ),
        )
        for line, answer in zip(lines, joined, strict=True)
    ]


async def heartbeats(job: GroupJob) -> GroupRun:
    """Send a heartbeat of each member every `interval_ms`, spread evenly over the interval."""
    lines = await connect(job, job.groups * job.members)
    await find(lines[0], "group-0")
    members: list[LoadMember] = []
    for first in range(0, job.groups, _GROUPS_AT_ONCE):
        numbers = range(first, min(first + _GROUPS_AT_ONCE, job.groups))
        joining = (
            become_members(job, f"group-{number}", lines[number * job.members : (number + 1) * job.members])
            for number in numbers
        )
        for joined in await asyncio.gather(*joining):
            members += joined
    print(f"{len(members)} members in {job.groups} groups", flush=True)

    loop = asyncio.get_running_loop()
    interval_s = job.interval_ms / 1000
    latencies_ms: list[float] = []
    errors = 0
    over = False

    def beat(member: LoadMember) -> None:
        if over:
            return
        sent = loop.time()

        def answered(frame: bytes) -> None:
            nonlocal errors
            latencies_ms.append((loop.time() - sent) * 1000)
            errors += decode_response(HeartbeatRequest, 2, frame).error_code != ErrorCode.NONE

        member.line.send(member.heartbeat, answered)
        loop.call_at(sent + interval_s, beat, member)

    for number, member in enumerate(members):
        loop.call_later(number / len(members) * interval_s, beat, member)
    await asyncio.sleep(interval_s)  # After this, every member sends heartbeats.
    latencies_ms.clear()
    began = time.time()
    await asyncio.sleep(job.seconds)
    ended = time.time()
    over = True
    lost = sum(line.is_lost for line in lines)
    return GroupRun(len(latencies_ms), errors + lost, began, ended, percentiles(latencies_ms))


# Commits


async def commits(job: GroupJob) -> GroupRun:
    """Members commit offsets, each the next one when its last is acknowledged.

    Requests are encoded beforehand except for their offsets. Only the error of a response is decoded.
    """
    lines = await connect(job, job.members)
    await find(lines[0], "committer-0")
    for number, line in enumerate(lines):  # Wait until the coordinator has loaded the group.
        while _error(await line.ask(_commit(job.topic, number, 0), _COMMIT_VERSION)) != ErrorCode.NONE:
            await asyncio.sleep(0.1)

    latencies_ms: list[float] = []
    errors = 0
    left = job.commits
    over = asyncio.get_running_loop().create_future()

    def run(number: int, line: Line) -> None:
        frame = frame_of(_commit(job.topic, number, _MARK), _COMMIT_VERSION)
        before, _, behind = frame.partition(_OFFSET.pack(_MARK))
        offset = 0
        sent = 0.0

        def answered(answer: bytes) -> None:
            nonlocal errors
            latencies_ms.append((time.perf_counter() - sent) * 1000)
            errors += answer[-2:] != b"\0\0"
            send()

        def send() -> None:
            nonlocal left, offset, sent
            if left <= 0:
                if len(latencies_ms) == job.commits and not over.done():
                    over.set_result(None)
                return
            left -= 1
            offset += 1
            sent = time.perf_counter()
            line.send(b"".join((before, _OFFSET.pack(offset), behind)), answered)

        send()

    began = time.time()
    for number, line in enumerate(lines):
        run(number, line)
    await over
    return GroupRun(len(latencies_ms), errors, began, time.time(), percentiles(latencies_ms))


def _commit(topic: str, number: int, offset: int) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=f"committer-{number}",
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
    )


def _error(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


LOADS: dict[str, Callable[[GroupJob], Coroutine[Any, Any, GroupRun]]] = {
    "heartbeats": heartbeats,
    "commits": commits,
}


def job_json(job: GroupJob) -> str:
    """The argument that runs `job`."""
    return json.dumps(asdict(job))


def run_from_json(line: str) -> GroupRun:
    values = json.loads(line)
    return GroupRun(**{**values, "latency": LatencySummary(**values["latency"])})


if __name__ == "__main__":
    the_job = GroupJob(**json.loads(sys.argv[1]))
    print(json.dumps(asdict(asyncio.run(LOADS[the_job.kind](the_job)))), flush=True)
