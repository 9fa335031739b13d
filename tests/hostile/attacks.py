"""Attacks of one client without a right, on plain sockets, in the order of what they aim at.

Each returns what came of it, and raises `NotHeld` if it has done harm. tests/hostile/walk.py runs them.
"""

from __future__ import annotations

import contextlib
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
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
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast_log.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.list_transactions import ListTransactionsRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.test_poison_batches import POISON
from tests.hostile.scene import (
    GROUP,
    TOPIC,
    TRANSACTION,
    Scene,
    await_coordinator,
    create,
    files_below,
    held,
    names,
    once_loaded,
    produced,
    work_of_produce_ms,
)  # fmt: skip
from tests.integration.hostile_requests import harmful, internal_requests
from tests.integration.raw_socket import RawSocket
from tests.models.batches import START_MS, batch

_TOPIC_RESOURCE = 2
_SET = 0


def orders_of_brokers(scene: Scene) -> str:
    """Every version of every API between brokers, and a fetch that poses as a follower's."""
    before = scene.ask(MetadataRequest(topics=None), 12)
    topic_id = next(each.topic_id for each in before.topics if each.name == TOPIC)
    sent = 0
    for request, version in internal_requests():
        scene.ask(harmful(request, version, TOPIC, topic_id), version)
        sent += 1
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    posing = FetchRequest(
        replica_id=1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
    )
    refused = scene.ask(posing, 11).error_code
    after = scene.ask(MetadataRequest(topics=None), 12)
    is_same = (before.brokers, before.topics) == (after.brokers, after.topics)
    return held(
        is_same and refused == ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        f"{sent} requests changed {'nothing' if is_same else 'the metadata'}; the fetch of a pretended "
        f"replica: {ErrorCode(refused).name}",
    )


def too_many_partitions(scene: Scene) -> str:
    """A topic of 100,000 partitions, and 200 such topics that are only validated."""
    one = create(scene, "huge", 100_000).error_code
    many = [
        CreatableTopic(
            name=f"huge-{n}", num_partitions=100_000, replication_factor=1, assignments=[], configs=[]
        )
        for n in range(200)
    ]
    began_s = scene.work_s()
    rows = scene.ask(CreateTopicsRequest(topics=many, timeout_ms=60_000, validate_only=True)).topics
    worked_s = scene.work_s() - began_s
    codes = Counter(each.error_code for each in rows)
    return held(
        one != 0 and 0 not in codes and worked_s < 1,
        f"{ErrorCode(one).name}; validated: {names(codes)} in {worked_s:.2f} s of the broker's work",
    )


def promises_of_large_requests(scene: Scene) -> str:
    """Sockets that announce 100 MB and send 36 KB, beside a client with requests of 100 KB."""
    with ExitStack() as stack:
        for _ in range(3):
            promised = stack.enter_context(socket.create_connection(("127.0.0.1", scene.port)))
            promised.sendall(SIZE.pack(100 << 20) + b"\0\0\0\x09" + bytes(36_000))
        with scene.socket("honest") as client:
            began_s = time.monotonic()
            codes = Counter(produced(client, batch(bytes(100_000))).error_code for _ in range(200))
            took_s = time.monotonic() - began_s
    return held(codes == {0: 200}, f"200 requests of 100 KB beside: {names(codes)}, in {took_s:.1f} s")


def large_answers(scene: Scene) -> str:
    """Short requests that ask for much, and connections that do not read their answers."""
    repeated = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * 3000)
    configs = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=None
            )
        ]
        * 2000
    )
    producers = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0] * 15_000)])
    told = []
    for request in (repeated, configs, producers):
        with scene.socket() as connection:
            began_s = time.monotonic()
            connection.send_request(request)
            frame = connection.next_frame()
            told.append(
                f"{request.api.name}: {'closed' if frame is None else f'{len(frame):,} bytes'} in "
                f"{(time.monotonic() - began_s) * 1000:.0f} ms"
            )
            held(frame is None or len(frame) < 1 << 20, told[-1])
    with ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(scene.socket())
            for _ in range(200):
                connection.send_request(MetadataRequest(topics=None), 1)
        time.sleep(2)
    return "; ".join([*told, "20 connections that read nothing of 200 answers each: see memory"])


def bombs(scene: Scene) -> str:
    """Batches of a few KB that are 100 MB, into a topic that allows any size."""
    create(scene, "bombed", max_message_bytes=str(2**31 - 1))
    codes: Counter[int] = Counter()
    with scene.socket() as connection:
        for codec in (Compression.GZIP, Compression.LZ4, Compression.ZSTD):
            codes[produced(connection, batch(bytes(100 << 20), compression=codec), "bombed").error_code] += 1
    return held(0 not in codes, names(codes))


def large_members(scene: Scene) -> str:
    """Members of groups with subscriptions of 15 MB each, which leave."""
    await_coordinator(scene, "large-0", GROUP)
    codes: Counter[int] = Counter()
    for number in range(8):
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(15_000_000))
        join = JoinGroupRequest(
            group_id=f"large-{number}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            member_id="", protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        answer = scene.ask(join, 3)
        codes[0 if answer is None else answer.error_code] += 1
    return f"{names(codes)}; see memory"


def poison(scene: Scene) -> str:
    """Batches that no reader could decode."""
    with scene.socket() as connection:
        first = produced(connection, batch(b"good")).base_offset
        codes = Counter(produced(connection, records).error_code for records in POISON.values())
        last = produced(connection, batch(b"good")).base_offset
    return held(0 not in codes and last == first + 1, f"{names(codes)}; the next offset follows the last")


def parked_fetches(scene: Scene) -> str:
    """A thousand fetches of one partition that wait for its next record."""

    before_ms = work_of_produce_ms(scene, 50)
    with ExitStack() as stack:
        end = (
            scene.ask(
                ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsTopic(
                            name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                        )
                    ],
                ),
                5,
            )
            .topics[0]
            .partitions[0]
            .offset
        )
        wanted = FetchPartition(partition=0, fetch_offset=end, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_wait_ms=60_000, min_bytes=1 << 30, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
        )
        for _ in range(65):
            connection = stack.enter_context(scene.socket())
            for _ in range(16):
                connection.send_request(fetch, 11)
        time.sleep(1)
        beside_ms = work_of_produce_ms(scene, 50)
    return held(
        beside_ms < max(10 * before_ms, 20),
        f"a produce took {before_ms:.1f} ms of the broker's work before, and {beside_ms:.1f} ms beside 1,040 "
        "parked fetches",
    )


def made_up_producers(scene: Scene) -> str:
    """Producer ids that the cluster has not handed out, and segments of 14 bytes."""
    codes: Counter[int] = Counter()
    with scene.socket() as connection:
        for number in range(500):
            records = batch(b"x", producer_id=10**9 + number, producer_epoch=0, base_sequence=0)
            codes[produced(connection, records).error_code] += 1
    tiny = create(scene, "tiny", segment_bytes="14")
    return held(0 not in codes and tiny.error_code != 0, f"{names(codes)}; {tiny.error_message}")


def time_look_ups(scene: Scene) -> str:
    """Look-ups by time that are sent ahead, in a partition of 5,000 batches whose times are not in order."""
    create(scene, "timed")
    with scene.socket() as connection:
        for number in range(5_000):
            connection.send_request(
                ProduceRequest(
                    acks=0,
                    timeout_ms=1000,
                    topic_data=[
                        TopicProduceData(
                            name="timed",
                            partition_data=[
                                PartitionProduceData(
                                    index=0, records=batch(b"x", timestamp=START_MS + number % 7)
                                )
                            ],
                        )
                    ],
                ),
                9,
            )
        partition = ListOffsetsPartition(partition_index=0, timestamp=START_MS + 6)
        look_up = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="timed", partitions=[partition])]
        )
        for _ in range(20):
            connection.send_request(look_up, 5)
        answers = sum(connection.next_frame() is not None for _ in range(20))
    return held(answers == 20, f"{answers} answers")


def forged_lines(scene: Scene) -> str:
    """Names with a line break and ESC in what is logged."""
    forged = "x\n[2026-01-01 00:00:00,000] ERROR all is lost\x1b[2J"
    with scene.socket(forged) as connection:
        data = PartitionProduceData(index=0, records=batch(b"x")[:-1])
        topics = [TopicProduceData(name=forged, partition_data=[data])]
        connection.send_request(ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics), 9)
        connection.next_frame()
    time.sleep(0.5)
    text = scene.log.read_text(errors="replace")
    lines = [line for line in text.split("\n") if line.startswith("[2026-01-01 00:00:00,000]")]
    return held(not lines and "\x1b" not in text, f"{len(lines)} forged lines in {scene.log.name}")


def idle_connections(scene: Scene) -> str:
    """Connections that send nothing, from one address, more than it may have."""
    opened: list[socket.socket] = []
    try:
        with contextlib.suppress(OSError):
            opened.extend(socket.create_connection(("127.0.0.1", scene.port), 2) for _ in range(scene.idle))
        time.sleep(1)
        left = sum(is_open(each) for each in opened)
        with RawSocket(scene.port, source="127.0.0.2") as other:
            brokers = other.call(MetadataRequest(topics=[]), 4).brokers
    finally:
        for each in opened:
            each.close()
    told = f"{len(opened)} opened, {left} left open; a client of another address is served"
    return held(bool(brokers), told)


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def files_of_others(scene: Scene) -> str:
    """What other users of the machine may write."""
    root = scene.log.parent
    wide = [path for path in files_below(root) if may_be_written_by_all(path)]
    return held(not wide, f"{len(wide)} of the files under {root.name} may be written by everybody")


def may_be_written_by_all(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False  # The broker has removed it.
    return bool(mode & stat.S_IWOTH) and not stat.S_ISLNK(mode)


def quotas_and_internal_topics(scene: Scene) -> str:
    """Quotas for everybody, records and settings of the topics of the brokers themselves."""
    entity = [AlteredEntity(entity_type="user", entity_name=None)]
    quota = AlteredQuota(entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)])
    quotas = scene.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False)).entries[0]
    if not quotas.error_code:
        remove = AlteredQuota(entity=entity, ops=[OpData(key="producer_byte_rate", value=0.0, remove=True)])
        scene.ask(AlterClientQuotasRequest(entries=[remove], validate_only=False))
    told = [f"AlterClientQuotas of all users: {ErrorCode(quotas.error_code).name}"]
    for topic in ("__consumer_offsets", "__transaction_state"):
        deleted = scene.ask(
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
                    )
                ],
                timeout_ms=1000,
            )
        )
        code = deleted.topics[0].partitions[0].error_code
        change = ConfigAlteration(name="cleanup.policy", config_operation=_SET, value="delete")
        altered = scene.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[change]
                    )
                ],
                validate_only=False,
            )
        )
        changed = altered.responses[0].error_code
        told.append(f"{topic}: {ErrorCode(code).name}, {ErrorCode(changed).name}")
        held(code != 0 and changed != 0, told[-1])
    return "; ".join(told)


def transactions(scene: Scene) -> str:
    """Transactional ids without an end, more partitions than a transaction may have, and lists of all."""
    await_coordinator(scene, "0-", TRANSACTION)
    codes: Counter[int] = Counter()
    with scene.socket() as connection:
        number = 0
        while not codes[ErrorCode.POLICY_VIOLATION] and number < 5_000:
            wanted = InitProducerIdRequest(
                transactional_id=f"{number}-".ljust(8_000, "x"), transaction_timeout_ms=60_000
            )
            answer = connection.call(wanted, 4)
            codes[answer.error_code] += 1
            number += answer.error_code in (0, ErrorCode.POLICY_VIOLATION)
            if answer.error_code:
                time.sleep(0.01)
        began_s = time.monotonic()
        listed = connection.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
        listed_s = time.monotonic() - began_s
    with RawSocket(scene.port, source="127.0.0.3") as honest:
        wanted = InitProducerIdRequest(transactional_id="honest", transaction_timeout_ms=60_000)
        name = once_loaded(lambda: honest.call(wanted, 4), lambda answer: [answer.error_code])
        many = [AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(15_000)))]
        added = honest.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="honest", v3_and_below_producer_id=name.producer_id,
                v3_and_below_producer_epoch=name.producer_epoch, v3_and_below_topics=many, transactions=[],
            ),
            3,
        )  # fmt: skip
    rows = added.results_by_topic_v3_and_below[0].results_by_partition
    refused = Counter(each.partition_error_code for each in rows)
    return held(
        codes[ErrorCode.POLICY_VIOLATION] > 0 and name.error_code == 0 and 0 not in refused,
        f"ids: {names(codes)}; another address: {ErrorCode(name.error_code).name}; "
        f"{len(listed.transaction_states)} listed in {listed_s:.2f} s ({ErrorCode(listed.error_code).name}); "
        f"15,000 partitions: {names(refused)}",
    )


ATTACKS: tuple[Callable[[Scene], str], ...] = (
    orders_of_brokers, too_many_partitions, promises_of_large_requests, large_answers, bombs, large_members,
    poison, parked_fetches, made_up_producers, time_look_ups, forged_lines, idle_connections,
    files_of_others, transactions, quotas_and_internal_topics,
)  # fmt: skip
