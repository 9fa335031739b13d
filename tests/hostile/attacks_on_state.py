"""Attacks of one client without a right on what a broker keeps and does for itself: owners, append ids, keys,
quotas, compaction, its internal topics, logins.

As those of tests/hostile/attacks.py they are on plain sockets, against default settings.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import islice
from typing import Any
from uuid import UUID

from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlteredQuota,
    OpData,
)
from holdfast_log.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from holdfast_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.messages.ownership import IF_FREE, OwnRequest, ResourceClaim
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from tests.hostile.scene import (
    GROUP,
    TRANSACTION,
    Scene,
    await_coordinator,
    create,
    files_below,
    held,
    longest_work_of_produce_ms,
    names,
    once_loaded,
    produced,
    sizes,
    work_of_produce_ms,
)
from tests.integration.raw_socket import RawSocket
from tests.models.batches import START_MS, batch

_TOPIC_RESOURCE = 2
_AHEAD = 50
"""Requests that are sent before the first is answered."""
_CONTROL = "\x1b[2J\n[2026-01-01 00:00:00,000] ERROR all is lost"
_COMMITTED, _COMMITTING_GROUPS = 50, 2_000
"""Partitions, and groups that commit an offset of each."""
_CLIENT_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(160)
"""How a client begins that takes the port for one of TLS."""


def answers(connection: RawSocket, requests: Iterable[Request[Any]], version: int) -> int:
    """Send the requests, some of them ahead. Returns how many were answered before the connection closed."""
    coming, waiting, got = iter(requests), 0, 0
    while True:
        for request in islice(coming, _AHEAD - waiting):
            connection.send_request(request, version)
            waiting += 1
        if not waiting or connection.next_frame() is None:
            return got
        waiting -= 1
        got += 1


def _claim(group: str, owner: str, wanted: list[ResourceClaim]) -> OwnRequest:
    return OwnRequest(
        group=group, owner_id=owner, session_timeout_ms=60_000, timeout_ms=60_000, resources=wanted
    )


def _claimed(connection: RawSocket, claim: OwnRequest) -> Any:
    """The answer of a coordinator that has read the names of the group."""
    return once_loaded(
        lambda: connection.call(claim), lambda answer: [row.error_code for row in answer.resources]
    )


def owners(scene: Scene) -> str:
    """Names with control characters that are as long as may be, by the thousand, for owners of long names,
    beyond the share of one source."""
    for group in ("strangers", "honest"):
        await_coordinator(scene, group, GROUP)
    codes: Counter[int] = Counter()
    owner = _CONTROL.ljust(255, "x")
    with scene.socket() as connection:
        for number in range(110):
            wanted = [
                ResourceClaim(name=f"{number}-{each}-{_CONTROL}".ljust(255, "x"), generation=IF_FREE)
                for each in range(100)
            ]
            answer = _claimed(connection, _claim("strangers", owner, wanted))
            codes.update(row.error_code for row in answer.resources)
            message = answer.resources[-1].error_message
        long = ResourceClaim(name="x" * 256, generation=IF_FREE)
        too_long = connection.call(_claim("strangers", "o", [long]))
        too_long_owner = connection.call(_claim("strangers", "o" * 256, wanted[:1]))
    with RawSocket(scene.port, source="127.0.0.5", timeout_s=60) as other:
        owned = [ResourceClaim(name=f"honest-{number}", generation=IF_FREE) for number in range(100)]
        granted = Counter(row.error_code for row in _claimed(other, _claim("honest", "o", owned)).resources)
    time.sleep(0.5)
    text = scene.log.read_text(errors="replace")
    lines = [line for line in text.split("\n") if line.startswith("[2026-01-01 00:00:00,000]")]
    return held(
        set(codes) == {0, ErrorCode.POLICY_VIOLATION}
        and 1_000 < codes[0] < 10_000
        and "own.records.per.source.percentage=50" in str(message)
        and too_long.error_code == too_long_owner.error_code == ErrorCode.INVALID_REQUEST
        and granted == {0: 100}
        and not lines
        and "\x1b" not in text,
        f"11,000 names: {names(codes)}; of 256 characters: {ErrorCode(too_long.error_code).name}; 100 names "
        f"for another address: {names(granted)}; {len(lines)} forged lines",
    )


def _named(number: int) -> bytes:
    builder = BatchBuilder()
    builder.append(START_MS, None, b"x", ((APPEND_ID_HEADER, number.to_bytes(16)),))
    return bytes(builder.build(has_append_id=True))


def _append(topic: str, records: bytes, **fields: object) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records, **fields)  # type: ignore[arg-type]
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def append_ids(scene: Scene) -> str:
    """More append ids than a partition may have, from a client that never says which are done with."""
    create(scene, "named-appends")
    with scene.socket(timeout_s=300) as connection:
        requests = (
            _append("named-appends", _named(number), expected_offset=number, append_id=number.to_bytes(16))
            for number in range(11_000)
        )
        count = answers(connection, requests, 9)
        last = _append(
            "named-appends", _named(10_999), expected_offset=10_999, append_id=(10_999).to_bytes(16)
        )
        again = connection.call(last, 9).responses[0].partition_responses[0]
    return held(
        count == 11_000 and (again.error_code, again.base_offset) == (0, 10_999),
        f"{count:,} appends, of which the last is repeated: "
        f"{ErrorCode(again.error_code).name}, offset {again.base_offset:,}",
    )


def keys(scene: Scene) -> str:
    """Topics with versions of keys that may use any memory, and 800,000 different keys."""
    codes: Counter[int] = Counter()
    for topic in range(4):
        made = create(scene, f"keyed-{topic}", key_versions="true", key_versions_memory_bytes=str(2**31 - 1))
        codes[made.error_code] += 1
        with scene.socket() as connection:
            for first in range(0, 200_000, 20_000):
                builder = BatchBuilder(Compression.ZSTD)
                for number in range(first, first + 20_000):
                    builder.append(START_MS, number.to_bytes(8), b"")
                codes[produced(connection, bytes(builder.build()), f"keyed-{topic}").error_code] += 1
    return held(set(codes) == {0}, f"{names(codes)}; see memory")


def quotas_of_many(scene: Scene) -> str:
    """Quotas of 2,000 client ids that do not exist, which every request looks for from then on."""

    def alter(*, remove: bool) -> Counter[int]:
        codes: Counter[int] = Counter()
        for first in range(0, 2_000, 500):
            entries = [
                AlteredQuota(
                    entity=[AlteredEntity(entity_type="client-id", entity_name=f"{number}{_CONTROL}")],
                    ops=[OpData(key="producer_byte_rate", value=1.0, remove=remove)],
                )
                for number in range(first, first + 500)
            ]
            rows = scene.ask(AlterClientQuotasRequest(entries=entries, validate_only=False)).entries
            codes.update(row.error_code for row in rows)
        return codes

    before_ms = work_of_produce_ms(scene, 100)
    codes = alter(remove=False)
    time.sleep(1)
    beside_ms = work_of_produce_ms(scene, 100)
    alter(remove=True)
    return held(
        beside_ms < max(10 * before_ms, 20),
        f"{names(codes)}; a produce of another client took {before_ms:.1f} ms of the broker's work before, "
        f"and {beside_ms:.1f} ms beside them",
    )


def internal_topics(scene: Scene) -> str:
    """Settings, partitions, deletion and records of the topics of the brokers themselves."""
    told, is_held = [], True
    for topic in ("__consumer_offsets", "__transaction_state"):
        alteration = AlterableConfig(name="cleanup.policy", value="delete")
        resource = AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[alteration]
        )
        altered = scene.ask(AlterConfigsRequest(resources=[resource], validate_only=False)).responses[0]
        more = CreatePartitionsTopic(name=topic, count=60, assignments=None)
        grown = scene.ask(
            CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False)
        ).results[0]
        deleted = scene.ask(
            DeleteTopicsRequest(
                topics=[DeleteTopicState(name=topic, topic_id=UUID(int=0))], topic_names=[], timeout_ms=10_000
            ),
            6,
        ).responses[0]
        with scene.socket() as connection:
            written = produced(connection, batch(b"x"), topic)
        codes = [each.error_code for each in (altered, grown, deleted, written)]
        is_held = is_held and all(codes)
        told.append(f"{topic}: {', '.join(ErrorCode(code).name for code in codes)}")
    return held(is_held, "; ".join(told))


def offsets(scene: Scene) -> str:
    """Committed offsets of thousands of groups, and the deletion of their topic."""
    created = create(scene, "committed", _COMMITTED)
    held(not created.error_code, f"CreateTopics: {ErrorCode(created.error_code).name}")
    await_coordinator(scene, "committed", GROUP)
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
        for index in range(_COMMITTED)
    ]
    topics = [OffsetCommitRequestTopic(name="committed", partitions=rows)]
    commits = (
        OffsetCommitRequest(group_id=f"committed-{number}", member_id="", topics=topics)
        for number in range(_COMMITTING_GROUPS)
    )
    with scene.socket() as connection:
        once_loaded(
            lambda: connection.call(
                OffsetCommitRequest(group_id="committed", member_id="", topics=topics), 6
            ),
            lambda answer: [answer.topics[0].partitions[0].error_code],
        )
        done = answers(connection, commits, 6)
    before_ms = longest_work_of_produce_ms(scene, 1)
    deletion = DeleteTopicState(name="committed", topic_id=UUID(int=0))
    with scene.socket() as connection:
        connection.send_request(DeleteTopicsRequest(topics=[deletion], topic_names=[], timeout_ms=60_000), 6)
        beside_ms = longest_work_of_produce_ms(scene, 3)
        held(connection.next_frame() is not None, "DeleteTopics: the broker closed the connection")
    deleted = scene.ask(DeleteTopicsRequest(topics=[deletion], topic_names=[], timeout_ms=60_000), 6)
    code = ErrorCode(deleted.responses[0].error_code)
    is_gone = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The figure tells of a long turn on a quiet machine only: while others keep the client from running, the
    # broker goes on with its work. That one step is done in a turn is tested by counting.
    return held(
        is_gone and done == _COMMITTING_GROUPS,
        f"{done * _COMMITTED:,} offsets; the topic is deleted: {is_gone}; a produce of another client waited "
        f"for {before_ms:.0f} ms of the broker's work before, and for {beside_ms:.0f} ms beside the deletion",
    )


def logins(scene: Scene) -> str:
    """Handshakes of SASL and TLS at a port that wants neither, and access control lists without an
    authorizer."""
    with scene.socket() as connection:
        hands = answers(connection, (SaslHandshakeRequest(mechanism="PLAIN") for _ in range(2_000)), 1)
    tokens = 0
    for _ in range(50):
        with scene.socket() as connection:
            token = SaslAuthenticateRequest(auth_bytes=bytes(60_000))
            tokens += answers(connection, (token for _ in range(20)), 2)
    with ExitStack() as stack:
        for _ in range(200):
            hello = stack.enter_context(socket.create_connection(("127.0.0.1", scene.port)))
            hello.sendall(_CLIENT_HELLO)
        binding = AclCreation(
            resource_type=AclResource.TOPIC, resource_name="x", resource_pattern_type=AclPattern.LITERAL,
            principal="User:*", host="*", operation=AclOperation.ALL, permission_type=AclPermission.DENY,
        )  # fmt: skip
        answer = scene.ask(CreateAclsRequest(creations=[binding] * 1_900))
    codes = Counter(row.error_code for row in answer.results)
    return held(
        0 not in codes,
        f"{hands:,} handshakes and {tokens} tokens answered; 1,900 denials for everybody: {names(codes)}",
    )


def _cleaned(scene: Scene, topic: str, larger_than: int, seconds: float) -> int:
    """The bytes of the log's segments once they are fewer, or after so many seconds."""
    ends_s = time.monotonic() + seconds
    while True:
        below = files_below(scene.log.parent.parent)
        size = sizes(path for path in below if path.parent.name == f"{topic}-0" and path.suffix == ".log")
        if size < larger_than or time.monotonic() > ends_s:
            return size
        time.sleep(0.5)


def records_for_the_cleaner(scene: Scene) -> str:
    """A compacted topic with 300,000 keys, keys of 900 KB, tombstones, and 300 aborted transactions."""
    create(
        scene, "dirty", cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_ms="1000",
        segment_bytes="1048576", max_compaction_lag_ms="1000", delete_retention_ms="0",
    )  # fmt: skip
    codes: Counter[int] = Counter()
    with scene.socket(timeout_s=300) as connection:

        def write(rows: Iterable[tuple[bytes, bytes | None]]) -> None:
            builder = BatchBuilder(Compression.ZSTD)
            for key, value in rows:
                builder.append(START_MS, key, value)
            codes[produced(connection, bytes(builder.build()), "dirty").error_code] += 1

        for first in range(0, 300_000, 20_000):
            write((number.to_bytes(8), b"v") for number in range(first, first + 20_000))
        for number in range(3):
            write([(bytes([number]) * 900_000, b"v")])
        for _ in range(4):
            write((number.to_bytes(8), None) for number in range(50_000))
        # Transactional ids of the usual address may be used up by another attack.
        with RawSocket(scene.port, source="127.0.0.4", timeout_s=300) as other:
            aborted = _abort_transactions(scene, other, "dirty", 300)
        size = _cleaned(scene, "dirty", 0, 0)
        time.sleep(1.5)
        write([(b"last", b"v")])  # It begins another segment: those before it may be compacted.
    left = _cleaned(scene, "dirty", size, 120)
    with scene.socket() as connection:
        again = produced(connection, batch(b"x"))
    return held(
        set(codes) == {0} and left < size and again.error_code == 0,
        f"{names(codes)}, {aborted} transactions; compaction left {left >> 10} of {size >> 10} KiB",
    )


def _abort_transactions(scene: Scene, connection: RawSocket, topic: str, count: int) -> int:
    """Begin and abort transactions of one record each. Returns how many were aborted."""
    name, aborted = "aborts", 0
    await_coordinator(scene, name, TRANSACTION)
    wanted = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    found = once_loaded(lambda: connection.call(wanted, 4), lambda answer: [answer.error_code])
    held(not found.error_code, f"InitProducerId: {ErrorCode(found.error_code).name}")
    producer_id, epoch = found.producer_id, found.producer_epoch
    for number in range(count):
        builder = BatchBuilder()
        builder.append(START_MS, b"k", b"v")
        records = bytes(
            builder.build(
                producer_id=producer_id, producer_epoch=epoch, base_sequence=number, is_transactional=True
            )
        )
        connection.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
                transactions=[],
            ),
            3,
        )
        request = _append(topic, records)
        request.transactional_id = name
        written = connection.call(request, 9).responses[0].partition_responses[0]
        ended = connection.call(
            EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=False
            ),
            3,
        )
        aborted += not (written.error_code or ended.error_code)
    return aborted


STATE_ATTACKS: tuple[Callable[[Scene], str], ...] = (
    owners, append_ids, keys, quotas_of_many, internal_topics, offsets, logins, records_for_the_cleaner,
)  # fmt: skip
