"""Collects one event's updates for brokers, so that each broker gets one request of each kind."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from holdfast_log.coordinator.controller.effects import BrokerRequest, DecisionSteps, Pause, SendToBrokers
from holdfast_log.coordinator.controller.state import ControllerState
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.protocol.messages.get_replica_log_info import (
    REPLICA_LOG_INFO_MAX,
    AskedReplicas,
    GetReplicaLogInfoRequest,
)
from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from holdfast_log.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from holdfast_log.protocol.messages.yield_leadership import (
    YIELDED_MAX,
    YieldedPartition,
    YieldedTopic,
    YieldLeadershipRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition

LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
"""Sent in place of leader and leader epoch for a topic that is being deleted."""
NO_PARTITION_LEADER = -1

INCREMENTAL = 1
FULL = 2
"""The types of LeaderAndIsr: a full one lists all replicas of the broker."""

ROWS_AT_ONCE = 500
"""Rows after which the next request is built in another turn."""

_SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class RequestBatch:
    """Collects updates; `flush` builds the requests from the state at that time."""

    def __init__(self, state: ControllerState, inter_broker_listener: str) -> None:
        self._state = state
        self._listener = inter_broker_listener
        self._replicas: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[int, dict[TopicPartition, None]] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._log_info: dict[int, list[TopicPartition]] = {}
        self._yields: dict[int, list[tuple[TopicPartition, YieldedPartition]]] = {}
        self._yield_requests = 0
        self._complete: dict[int, None] = {}

    def leader_and_isr(
        self, brokers: Iterable[int], partitions: Iterable[TopicPartition], *, is_new: bool = False
    ) -> None:
        """Send the leader and in-sync set to those of `brokers` that are alive and have replicas.

        Topics being deleted are left out: a broker that has removed its log would create it again.
        """
        partitions = [at for at in partitions if not self._state.is_deleting(at)]
        for broker_id in brokers:
            for at in partitions:
                partition = self._state.partition(at)
                known = partition.state is not None and broker_id in partition.assignment.replicas
                if known and broker_id in self._state.brokers:
                    replicas = self._replicas.setdefault(broker_id, {})
                    replicas[at] = replicas.get(at, False) or is_new

    def everything(self, broker_id: int) -> None:
        """Send a broker all of its replicas, and metadata of the whole cluster."""
        self._complete[broker_id] = None
        self._replicas.setdefault(broker_id, {})
        self.leader_and_isr([broker_id], self._state.partitions_on(broker_id))
        self.metadata([at for at, _ in self._state.partitions()], to=[broker_id])

    def metadata(self, partitions: Iterable[TopicPartition], *, to: Iterable[int] | None = None) -> None:
        """Send metadata of these partitions and the live brokers to brokers, all by default."""
        partitions = list(partitions)
        for broker_id in self._state.brokers if to is None else to:
            self._metadata.setdefault(broker_id, {}).update(dict.fromkeys(partitions))

    def stop_replica(self, broker_id: int, partitions: Iterable[TopicPartition], *, delete: bool) -> None:
        """Have a broker stop its replicas, and with `delete` remove their logs.

        Replicas to delete are taken out of the broker's LeaderAndIsr.
        """
        partitions = list(partitions)
        for at in partitions if delete else ():
            self._replicas.get(broker_id, {}).pop(at, None)
        self._stops.setdefault(broker_id, {}).update(dict.fromkeys(partitions, delete))

    def log_info(self, broker_id: int, at: TopicPartition) -> None:
        """Ask a broker where the log of its replica ends, after everything else in this batch."""
        self._log_info.setdefault(broker_id, []).append(at)

    def yield_leadership(
        self, broker_id: int, at: TopicPartition, leader_epoch: int, *, is_yielded: bool
    ) -> None:
        """Ask a leader to stop confirming for a partition in a leader epoch, or to confirm again."""
        row = YieldedPartition(partition=at[1], leader_epoch=leader_epoch, is_yielded=is_yielded)
        self._yields.setdefault(broker_id, []).append((at, row))

    def flush(self) -> DecisionSteps[None]:
        """Send what was collected. Requests with very many rows are built in several turns."""
        requests: list[tuple[int, BrokerRequest]] = []
        rows = 0
        for built in self._built():
            if built is None:
                yield Pause()
                continue
            broker_id, request = built
            requests.append((broker_id, request))
            collected = self._replicas, self._metadata, self._stops
            rows += sum(len(each.get(broker_id, ())) for each in collected)
            if rows >= ROWS_AT_ONCE:
                rows = 0
                yield Pause()
        self._replicas, self._metadata, self._stops, self._complete = {}, {}, {}, {}
        self._log_info, self._yields = {}, {}
        if requests:
            yield SendToBrokers(requests)

    def _built(self) -> Iterator[tuple[int, BrokerRequest] | None]:
        """The collected requests with their broker ids, for each broker in sending order. None: what follows
        is built in another turn."""
        live_brokers = self._live_brokers() if self._metadata else []
        rows: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState] = {}
        last: dict[TopicPartition, None] = {}
        topics: list[UpdateMetadataTopicState] = []
        for broker_id in sorted(self._state.brokers):
            if self._replicas.get(broker_id) or broker_id in self._complete:
                yield broker_id, self._leader_and_isr_request(broker_id, rows)
            if broker_id in self._metadata:
                # Usually all brokers get the same rows, possibly of ten thousand partitions: build them once.
                if self._metadata[broker_id] != last:
                    last = self._metadata[broker_id]
                    topics = yield from self._metadata_topics(last)
                yield broker_id, self._metadata_request(broker_id, topics, live_brokers)
            if broker_id in self._stops:
                yield broker_id, self._stop_replica_request(broker_id)
            asked = self._log_info.get(broker_id, [])
            for start in range(0, len(asked), REPLICA_LOG_INFO_MAX):
                part = asked[start : start + REPLICA_LOG_INFO_MAX]
                yield broker_id, self._log_info_request(part)
            yields = self._yields.get(broker_id, [])
            for start in range(0, len(yields), YIELDED_MAX):
                part_of_yields = yields[start : start + YIELDED_MAX]
                yield broker_id, self._yield_request(broker_id, part_of_yields)

    def _leader_and_isr_request(
        self, broker_id: int, rows: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState]
    ) -> LeaderAndIsrRequest:
        """Build the request. `rows` caches rows across brokers; new ones are added."""
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders: dict[int, None] = {}
        for at, is_new in self._replicas[broker_id].items():
            name, number = at
            partition = self._state.partition(at)
            assert partition.state is not None
            topic = topics.get(name)
            if topic is None:
                topic_id = self._state.topics[name].topic_id
                topic = topics[name] = LeaderAndIsrTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=[]
                )
            leaders[partition.state.leader] = None
            row = rows.get((at, is_new))
            if row is None:
                row = rows[at, is_new] = LeaderAndIsrPartitionState(
                    partition_index=number,
                    controller_epoch=partition.state.controller_epoch,
                    leader=partition.state.leader,
                    leader_epoch=partition.state.leader_epoch,
                    isr=list(partition.state.isr),
                    partition_epoch=partition.version,
                    replicas=list(partition.assignment.replicas),
                    adding_replicas=list(partition.assignment.adding),
                    removing_replicas=list(partition.assignment.removing),
                    is_new=is_new,
                    eligible_leader_replicas=list(partition.state.eligible),
                )
            topic.partition_states.append(row)
        return LeaderAndIsrRequest(
            controller_id=self._state.controller_id,
            controller_epoch=self._state.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            # Claim no list to be complete while a topic is unreadable: brokers would move its logs aside as
            # strays.
            type=FULL if broker_id in self._complete and not self._state.unreadable else INCREMENTAL,
            topic_states=list(topics.values()),
            live_leaders=self._live_leaders(leaders),
        )

    def _live_leaders(self, leaders: Iterable[int]) -> list[LeaderAndIsrLiveLeader]:
        return [
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id in leaders
            if broker_id in self._state.brokers
            for endpoint in self._state.brokers[broker_id].info.endpoints
            if endpoint.listener == self._listener
        ]

    def _metadata_topics(
        self, partitions: Iterable[TopicPartition]
    ) -> Generator[None, None, list[UpdateMetadataTopicState]]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for count, at in enumerate(partitions, 1):
            if count % ROWS_AT_ONCE == 0:
                yield None
            name, number = at
            topic = topics.get(name)
            if topic is None:
                topic_id = self._state.topics[name].topic_id
                topic = topics[name] = UpdateMetadataTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=[]
                )
            topic.partition_states.append(self._metadata_state(at, number))
        return list(topics.values())

    def _metadata_request(
        self, broker_id: int, topics: list[UpdateMetadataTopicState], live_brokers: list[UpdateMetadataBroker]
    ) -> UpdateMetadataRequest:
        decided = self._state.features.finalized
        return UpdateMetadataRequest(
            controller_id=self._state.controller_id,
            controller_epoch=self._state.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            topic_states=topics,
            live_brokers=live_brokers,
            finalized_features_epoch=NO_EPOCH if decided is None else decided.epoch,
            transaction_version=0 if decided is None else decided.transaction_version,
        )

    def _metadata_state(self, at: TopicPartition, number: int) -> UpdateMetadataPartitionState:
        partition = self._state.partition(at)
        state = partition.state
        deleting = self._state.is_deleting(at)
        return UpdateMetadataPartitionState(
            partition_index=number,
            controller_epoch=state.controller_epoch if state else self._state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader if state else NO_PARTITION_LEADER,
            leader_epoch=EPOCH_DURING_DELETE if deleting else state.leader_epoch if state else NO_EPOCH,
            isr=list(state.isr) if state else [],
            zk_version=partition.version,
            replicas=list(partition.assignment.replicas),
            offline_replicas=self._state.offline_replicas_of(at),
        )

    def _live_brokers(self) -> list[UpdateMetadataBroker]:
        return [
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=_SECURITY_PROTOCOLS.get(endpoint.security_protocol, 0),
                    )
                    for endpoint in broker.info.endpoints
                ],
                rack=broker.info.rack,
            )
            for broker_id, broker in sorted(self._state.brokers.items())
        ]

    def _stop_replica_request(self, broker_id: int) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for at, delete in self._stops[broker_id].items():
            name, number = at
            topic = topics.get(name)
            if topic is None:
                topic_id = self._state.topics[name].topic_id
                topic = topics[name] = StopReplicaTopicState(
                    topic_name=name, topic_id=topic_id, partition_states=[]
                )
            state = self._state.partition(at).state
            epoch = state.leader_epoch if state else NO_EPOCH
            topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=number,
                    leader_epoch=EPOCH_DURING_DELETE if self._state.is_deleting(at) else epoch,
                    delete_partition=delete,
                )
            )
        return StopReplicaRequest(
            controller_id=self._state.controller_id,
            controller_epoch=self._state.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            topic_states=list(topics.values()),
        )

    def _log_info_request(self, partitions: Iterable[TopicPartition]) -> GetReplicaLogInfoRequest:
        topics: dict[str, AskedReplicas] = {}
        for name, number in partitions:
            topic = topics.get(name)
            if topic is None:
                topic_id = self._state.topics[name].topic_id
                topic = topics[name] = AskedReplicas(topic_id=topic_id, partitions=[])
            topic.partitions.append(number)
        return GetReplicaLogInfoRequest(topic_partitions=list(topics.values()))

    def _yield_request(
        self, broker_id: int, rows: Iterable[tuple[TopicPartition, YieldedPartition]]
    ) -> YieldLeadershipRequest:
        self._yield_requests += 1
        topics: dict[str, YieldedTopic] = {}
        for (name, _), row in rows:
            topic = topics.get(name)
            if topic is None:
                topic_id = self._state.topics[name].topic_id
                topic = topics[name] = YieldedTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(row)
        return YieldLeadershipRequest(
            controller_id=self._state.controller_id,
            controller_epoch=self._state.controller_epoch,
            broker_epoch=self._broker_epoch(broker_id),
            number=self._yield_requests,
            topics=list(topics.values()),
        )

    def _broker_epoch(self, broker_id: int) -> int:
        return self._state.brokers[broker_id].epoch
