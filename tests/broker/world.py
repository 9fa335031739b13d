"""A broker without sockets and ZooKeeper: the real logs, replicas and handlers, on a fake clock. The test
sends the controller's requests.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.decompression_budget import DecompressionBudget, DecompressionLimits
from holdfast_log.broker.handlers.api_versions import ApiVersionsHandler
from holdfast_log.broker.handlers.delete_records import DeleteRecordsHandler, DeleteRecordsSettings
from holdfast_log.broker.handlers.fetch import FetchHandler, FetchRequestSettings
from holdfast_log.broker.handlers.list_offsets import ListOffsetsHandler
from holdfast_log.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from holdfast_log.broker.handlers.produce import ProduceHandler
from holdfast_log.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from holdfast_log.broker.log.disk import Disk, OsDisk
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.interfaces import Address, Network
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.replication.fetch_sessions import FetchSessions, SessionLimits
from holdfast_log.broker.replication.fetches import Fetches
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.broker.replication.introducing import Introducing
from holdfast_log.broker.replication.key_reads import KeyReads
from holdfast_log.broker.replication.leadership import IsrProposal
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.record_deletions import RecordDeletions
from holdfast_log.broker.replication.replica_choice import ReplicaChoice, ReplicaSelection
from holdfast_log.broker.replication.replicas import ReplicaLimits, Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.broker.replication.settings import LEADER_ONLY
from holdfast_log.broker.replication.transaction_markers import TransactionMarkers
from holdfast_log.broker.replication.verifying import AddingLimits, Verdicts, Verifying
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.authorization import Authorizer
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.parts import PartedRequests
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataPartitionState
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import START_MS
from tests.models.orders import (
    broker_metadata,
    leader_and_isr,
    partition_metadata,
    partition_role,
    update_metadata,
)
from tests.models.quotas import client_quotas
from tests.models.wires import FakeWire
from tests.models.workers import ImmediateWorkers

R = TypeVar("R", bound=Response)
T = TypeVar("T")

LOCAL_ID = 1
LAG_MS = 10_000
START_S = START_MS / 1000


class Client:
    """A client with one connection and one request at a time. Unless told otherwise its connection counts as
    a broker's, as on a listener that brokers share with clients: so it may play a follower."""

    def __init__(
        self,
        world: World,
        number: int,
        client_id: str = "test",
        host: str = "127.0.0.1",
        *,
        is_broker: bool = True,
    ) -> None:
        self.client_id = client_id
        limits = ConnectionLimits(100 << 20, 100 << 20, 1000)
        self.wire = FakeWire(Address(host, 40000))
        self.connection = ServerConnection(
            number,
            "PLAINTEXT",
            self.wire.peer,
            world.dispatcher.dispatch,
            limits,
            world.clock,
            is_broker=is_broker,
        )
        self.connection.connected(self.wire)
        self._asked: list[tuple[type[Request[Any]], int]] = []

    def ask(self, request: Request[Any], version: int | None = None) -> None:
        version = request.api.max_version if version is None else version
        frame = bytearray(join_parts(encode_request(request, version, len(self._asked), self.client_id))[4:])
        self._asked.append((type(request), version))
        self.connection.frames_received([memoryview(frame)])

    def ask_together(self, requests: Sequence[Request[Any]]) -> None:
        """Send several requests, which arrive together."""
        frames = []
        for request in requests:
            version = request.api.max_version
            frames.append(
                bytearray(join_parts(encode_request(request, version, len(self._asked), self.client_id))[4:])
            )
            self._asked.append((type(request), version))
        self.connection.frames_received([memoryview(frame) for frame in frames])

    def send_bytes(self, frame: bytes) -> None:
        self.connection.frames_received([memoryview(bytearray(frame))])

    def answers(self) -> list[Any]:
        """The responses since the last call."""
        found = []
        for frame in self.wire.frames():
            (correlation_id,) = struct.unpack_from(">i", frame)
            request_class, version = self._asked[correlation_id]
            found.append(decode_response(request_class, version, frame))
        return found

    def call(self, request: Request[R], version: int | None = None) -> R:
        """Send a request that must be answered at once. Returns the response."""
        self.ask(request, version)
        (answer,) = self.answers()
        return cast(R, answer)


class NotedCopier:
    """Records the partitions to copy, and copies nothing."""

    def __init__(self) -> None:
        self.followed: dict[tuple[str, int], tuple[int, int]] = {}
        """(topic, index) -> (leader, leader epoch)."""

    def follow(self, partition: Partition) -> None:
        self.followed[partition.key] = (partition.leader, partition.leader_epoch)

    def forget(self, partition: Partition) -> None:
        self.followed.pop(partition.key, None)


class ConfirmsAll:
    """Coordinators who know every transaction."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Deferred[Verdicts]:
        return succeed(dict.fromkeys(partitions, ErrorCode.NONE))


class World:
    """A broker without its process; its id is 1 by default."""

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        topic_config: dict[str, Any] | None = None,
        session_limits: SessionLimits | None = None,
        local_id: int = LOCAL_ID,
        decompression_max_bytes: int = 128 << 20,
        authorizer: Authorizer | None = None,
        alter_listeners: tuple[str, ...] = (),
        replica_selector: str = LEADER_ONLY,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(START_S)
        self._set_forward_s = 0.0
        self.workers = ImmediateWorkers()
        self.metadata = MetadataCache()
        self.proposals: list[IsrProposal] = []
        self.copier = NotedCopier()
        flusher = Flusher(self.workers, self.clock)
        self.logs = LogManager(
            [str(directory)],
            disk or OsDisk(),
            self.workers,
            self.clock,
            self.now_ms,
            random.Random(1),
            flusher,
            topic_config or {},
        )
        self.logs.start()
        self.holds_lease = True
        self.right = RightToConfirm(lambda: self.holds_lease)
        self.handed_out_below: int | None = None
        """Ids from it on are refused to producers; None: none are."""
        self.unsure_about_ids = 0
        """So many of the next batches of new producers are refused, because their ids are not known yet."""
        self.replicas = Replicas(
            local_id,
            self.clock,
            flusher,
            self.metadata,
            ReplicaLimits(LAG_MS, 1000),
            self.proposals.append,
            FetchSessions(random.Random(2).getrandbits, partial(self.clock.callLater, 0), session_limits),
            self.now_ms,
            self.right,
            Introducing(self._id_refusal),
        )
        self.right.add_listener(self.replicas.right_changed)
        self.roles = Roles(self.replicas, self.logs, self.copier, self.clock)
        self.deletions = RecordDeletions(self.replicas, self.metadata)
        self.logs.checkpoints.add_start_listener(self.deletions.start_durable)
        self.logs.add_failure_listener(self.roles.directory_failed)
        self.quota_limits = QuotaLimits(QuotaSettings())
        self.quotas = client_quotas(self.quota_limits, self.clock)
        self.answers = LongAnswers(self.clock)
        self.dispatcher = Dispatcher(
            RepeatedLog(self.clock),
            authorizer=authorizer,
            quotas=self.quotas,
            parted=PartedRequests(self.answers),
            clock_s=self.clock.seconds,
        )
        held = HeldRequests()
        decompression = DecompressionBudget(self.workers, DecompressionLimits(decompression_max_bytes))
        self.verifying = Verifying(self.replicas, self.clock, AddingLimits(100, 20))
        self.verifying.verifier = ConfirmsAll()
        self.markers = TransactionMarkers(self.replicas)
        choice = ReplicaChoice(ReplicaSelection(replica_selector), self.metadata, local_id)
        self.fetches = Fetches(self.replicas, self.metadata, self.workers, choice)
        self.dispatcher.add(
            [
                ApiVersionsHandler(
                    self.dispatcher,
                    self.metadata,
                    FirstUpdate(self.metadata, self.clock),
                    TransactionVersionSetting(1),
                ),
                ProduceHandler(
                    self.replicas,
                    KeyReads(self.replicas, self.workers, held, decompression),
                    held,
                    self.verifying,
                ),
                WriteTxnMarkersHandler(self.markers, ClusterRights(alter_listeners)),
                FetchHandler(
                    self.fetches,
                    self.replicas,
                    FetchRequestSettings(55 << 20),
                    self.quotas,
                    self.answers,
                ),
                ListOffsetsHandler(self.replicas, decompression),
                DeleteRecordsHandler(self.deletions, self.replicas, DeleteRecordsSettings(30_000)),
                OffsetForLeaderEpochHandler(self.replicas, self.answers),
            ]
        )
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._ids_drawn = 0
        self._clients = 0

    def _id_refusal(self, producer_id: int) -> BrokerError | None:
        if self.unsure_about_ids:
            self.unsure_about_ids -= 1
            return BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.handed_out_below is None or producer_id < self.handed_out_below:
            return None
        return BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def surroundings(self, zookeeper: ZooKeeper | None = None) -> Surroundings:
        """The base of the wiring's builders, without a network."""
        return Surroundings(
            self.clock,
            self.logs.disk,
            cast(ZooKeeper, zookeeper),
            cast(Network, None),
            self.workers,
            random.Random(2),
            self.now_ms,
        )

    def now_ms(self) -> int:
        """The time of day."""
        return int((self.clock.seconds() + self._set_forward_s) * 1000)

    def set_clock_forward(self, seconds: float) -> None:
        """Set the time of day, without advancing the clock that times intervals."""
        self._set_forward_s += seconds

    def set_lease(self, *, is_held: bool) -> None:
        """End the broker's lease, or have it renewed, and tell the broker."""
        self.holds_lease = is_held
        self.right.lease_changed()

    def client(self, client_id: str = "test", host: str = "127.0.0.1") -> Client:
        self._clients += 1
        return Client(self, self._clients, client_id, host)

    def stranger(self, client_id: str = "broker-2", host: str = "127.0.0.1") -> Client:
        """A client on a listener that brokers do not use."""
        self._clients += 1
        return Client(self, self._clients, client_id, host, is_broker=False)

    def topic_id(self, topic: str) -> uuid.UUID:
        if topic not in self._topic_ids:
            self._ids_drawn += 1
            self._topic_ids[topic] = uuid.UUID(int=self._ids_drawn)
        return self._topic_ids[topic]

    def forget_topic_id(self, topic: str) -> None:
        """Draw another id when the topic is created again."""
        del self._topic_ids[topic]

    def assign(
        self,
        topic: str,
        index: int = 0,
        *,
        replicas: Sequence[int] = (LOCAL_ID,),
        isr: Sequence[int] | None = None,
        eligible: Sequence[int] = (),
        **role: int,
    ) -> int:
        """Assign a partition as the controller does, and update the metadata. Returns the error code."""
        isr = replicas if isr is None else isr
        request = self.leader_and_isr(topic, index, replicas=replicas, isr=isr, eligible=eligible, **role)
        response = fired(self.roles.apply_leader_and_isr(request))
        told = partition_metadata(index, replicas=replicas, isr=isr, **role)
        epoch = request.controller_epoch
        self.tell(topic, [told], live=sorted({LOCAL_ID, *replicas}), controller_epoch=epoch)
        if response.error_code:
            return response.error_code
        return response.topics[0].partition_errors[0].error_code

    def leader_and_isr(
        self,
        topic: str,
        index: int,
        *,
        replicas: Sequence[int] = (LOCAL_ID,),
        isr: Sequence[int] = (LOCAL_ID,),
        controller_epoch: int = 1,
        eligible: Sequence[int] = (),
        **role: int,
    ) -> LeaderAndIsrRequest:
        state = partition_role(
            index, replicas=replicas, isr=isr, controller_epoch=controller_epoch, eligible=eligible, **role
        )
        return leader_and_isr(topic, self.topic_id(topic), [state], controller_epoch=controller_epoch)

    def tell(
        self,
        topic: str,
        partitions: list[UpdateMetadataPartitionState],
        live: Sequence[int],
        controller_epoch: int = 1,
    ) -> None:
        brokers = list(map(broker_metadata, live))
        epoch = controller_epoch
        self.metadata.update(
            update_metadata(topic, self.topic_id(topic), partitions, brokers, controller_epoch=epoch)
        )


def follow(world: World, offset: int) -> None:
    """Record a fetch of t-0 by broker 2 from `offset`: it has all earlier records."""
    wanted = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=1,
    )
    world.replicas.record_fetch("t", wanted, 2)


class SessionFollower:
    """A broker that fetches partitions of a topic from this one in a session, as followers do."""

    def __init__(self, world: World, *indexes: int, topic: str = "t", broker_id: int = 2) -> None:
        self._world, self._topic, self._indexes, self._broker_id = world, topic, indexes or (0,), broker_id
        self._client = world.client()
        self._session_id = self._session_epoch = 0

    def fetch(self) -> None:
        """Fetch the ends of the logs: this broker has all records before them."""
        world, topic_id = self._world, self._world.topic_id(self._topic)
        wanted = []
        for index in self._indexes:
            partition = world.replicas.partition(self._topic, index)
            wanted.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=partition.log.log_end_offset,
                    last_fetched_epoch=-1,
                    log_start_offset=0,
                    partition_max_bytes=1 << 20,
                )
            )
        topics = [FetchTopic(topic_id=topic_id, partitions=wanted)]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=topics,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
        )
        request.replica_state.replica_id = self._broker_id
        answer = self._client.call(request)
        assert answer.error_code == ErrorCode.NONE
        self._session_id, self._session_epoch = answer.session_id, self._session_epoch + 1

    def fetch_for(self, seconds: float) -> None:
        """Fetch every 100 ms."""
        for _ in range(int(seconds * 10)):
            self.fetch()
            self._world.clock.advance(0.1)


def fired(deferred: Deferred[T]) -> T:
    """The result of a fired Deferred; a failure is raised."""
    results: list[T] = []
    failures: list[Failure] = []
    deferred.addCallbacks(results.append, failures.append)
    if failures:
        failures[0].raiseException()
    (result,) = results
    return result


def produce_request(
    topic: str, records: bytes, index: int = 0, *, acks: int = -1, timeout_ms: int = 1000
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def only_produced(response: ProduceResponse) -> PartitionProduceResponse:
    ((partition,),) = [topic.partition_responses for topic in response.responses]
    return partition


def fetch_request(
    topic_id: uuid.UUID,
    offset: int = 0,
    index: int = 0,
    *,
    min_bytes: int = 1,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    replica_id: int = -1,
) -> FetchRequest:
    """A Fetch request of the newest version, which names topics by id."""
    wanted = FetchPartition(
        partition=index,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=0,
        partition_max_bytes=partition_max_bytes,
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
    request.replica_state.replica_id = replica_id
    return request


def only_fetched(response: FetchResponse) -> PartitionData:
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition
