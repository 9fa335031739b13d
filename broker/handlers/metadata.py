"""Metadata (key 3): the live brokers, and the leaders and replicas of topics' partitions.

Versions: in version 0 an empty list means all topics, from 1 on null does, and an empty list means none.
From 4 on the client says whether a missing topic may be created; before, the broker's setting alone decides.
From 8 on the client may ask which operations it is authorised for (KIP-430), from 11 on for topics only.
From 10 on topics have ids, from 12 on a request may name them by id (KIP-516).

The response comes from the controller's last UpdateMetadata, and waits for the first one. A topic that this
request creates is answered LEADER_NOT_AVAILABLE, and clients ask again.

A client sees the topics that it may describe. Another one that it names is refused with
TOPIC_AUTHORIZATION_FAILED, whether it exists or not. A missing topic is created for a client that may create
it, and judged here: the controller sees only this broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import (
    ZERO_ID,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from holdfast_log.broker.requests.answers import LongAnswer, LongAnswers
from holdfast_log.broker.requests.audit import requester_of
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.requests.mutations import DEFAULT, MutationQuotas
from holdfast_log.broker.requests.operations import NOT_ASKED, authorized_operations
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS, is_legal_name
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_FIRST_VERSION_WITH_IDS = 12

_PARTITION_BYTES = 32
"""Size of a partition without its replicas."""

_PARTITIONS_PER_STEP = 64
"""Partitions that are made without a look at how long the turn has been."""


_TOPICS_MAX = 10_000
"""Maximum number of topics that one request names: an id takes longer to decode than anything else. A client
that wants more asks for all."""

CREATED_MAX = 25
"""Maximum number of topics that one request creates. Clients ask again for those that do not exist yet."""

_JUDGED_MAX = 200
"""Maximum number of missing topics of which one request asks whether its client may create them."""


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class AutoCreationSettings:
    """Whether a request for the metadata of a missing topic creates it."""

    is_enabled: Annotated[bool, "auto.create.topics.enable"]


@dataclass(eq=False)
class MetadataHandler(Handler[MetadataRequest, MetadataResponse]):
    request = MetadataRequest
    elements_max = _TOPICS_MAX
    metadata: MetadataCache
    identity: BrokerIdentity
    auto_creation: AutoCreation
    settings: AutoCreationSettings
    first_update: FirstUpdate
    mutations: MutationQuotas
    answers: LongAnswers

    def handle(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | Deferred[MetadataResponse]:
        return self.first_update.then(lambda: self._answer(context, request))

    def _answer(self, context: RequestContext, request: MetadataRequest) -> Deferred[MetadataResponse]:
        wanted = request.topics
        if context.version < _FIRST_VERSION_WITH_IDS and any(topic.name is None for topic in wanted or ()):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "topic ids are allowed from version 12 on")
        if wanted is None or (context.version == 0 and not wanted):
            everything = map(_named, list(self.metadata.topics))
            return ensureDeferred(self._answer_all(context, request, everything))
        return ensureDeferred(self._answer_named(context, request, named_once(wanted)))

    async def _answer_all(
        self, context: RequestContext, request: MetadataRequest, topics: Iterable[MetadataRequestTopic]
    ) -> MetadataResponse:
        with self.answers.begin(context, MetadataResponse) as answer:
            rows = answer.rows(MetadataResponseTopic)
            for topic in topics:
                if self._is_listed(context, topic.name):
                    rows.add(await self._topic(answer, request, topic, {}))
                else:
                    await answer.turn(0)
            return self._response(context, request, rows.finish())

    async def _answer_named(
        self, context: RequestContext, request: MetadataRequest, wanted: list[MetadataRequestTopic]
    ) -> MetadataResponse:
        missing, created = self._to_create(context, request, wanted)
        with self.answers.begin(context, MetadataResponse) as answer:
            rows = answer.rows(MetadataResponseTopic)
            if missing:
                for name in missing:
                    self.mutations.create(context, name, DEFAULT, is_strict=False)
                if len(wanted) > CREATED_MAX:
                    # The next request of the connection is not decoded before this one is answered.
                    await answer.other_turn()
                errors = await answer.outcome(self.auto_creation.create(missing, requester_of(context)))
                created.update(errors)
            for topic in wanted:
                rows.add(await self._topic(answer, request, topic, created))
            return self._response(context, request, rows.finish())

    def _is_listed(self, context: RequestContext, name: str | None) -> bool:
        """Whether a topic is in a list of all topics: it exists still, and the client may describe it."""
        return name in self.metadata.topics and _may_describe(context, name, is_noted=False)

    def _to_create(
        self, context: RequestContext, request: MetadataRequest, wanted: list[MetadataRequestTopic]
    ) -> tuple[list[str], dict[str, ErrorCode]]:
        """The missing topics to create, and the errors of those that the client may not create."""
        if not self.settings.is_enabled or not request.allow_auto_topic_creation:
            return [], {}
        names = (topic.name for topic in wanted if topic.name is not None)
        missing = (name for name in names if name not in self.metadata.topics)
        if not context.is_judged:
            return list(islice(missing, CREATED_MAX)), {}
        create, kind = AclOperation.CREATE, AclResource.TOPIC
        may_create_all = context.may(create, AclResource.CLUSTER, is_noted=False)
        allowed: list[str] = []
        refused: dict[str, ErrorCode] = {}
        for name in islice(missing, _JUDGED_MAX):
            if not _may_describe(context, name):
                continue
            if not may_create_all and not context.may(create, kind, name):
                refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif len(allowed) < CREATED_MAX:
                allowed.append(name)
        return allowed, refused

    async def _topic(
        self,
        answer: LongAnswer,
        request: MetadataRequest,
        wanted: MetadataRequestTopic,
        created: Mapping[str, ErrorCode],
    ) -> MetadataResponseTopic:
        name = self.metadata.name_of(wanted.topic_id) if wanted.name is None else wanted.name
        may_describe = name is None or _may_describe(answer.context, name)
        topic = self.metadata.topics.get(name) if name is not None and may_describe else None
        is_affordable = answer.reserve(len(name or "") + (0 if topic is None else _price(topic)))
        await answer.turn(len(name or ""))
        if not is_affordable:
            return _unknown(wanted.name, answer.too_long.code, wanted)
        if name is None:
            return _unknown(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted)
        if not may_describe:
            return _unknown(wanted.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted)
        if topic is not None:
            return await self._known(answer, request, topic)
        if name in created:
            error = created[name]
        elif is_legal_name(name):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            # Clients wait for an unknown topic; this error keeps them from waiting in vain.
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            error = ErrorCode.LEADER_NOT_AVAILABLE
        return _unknown(name, error, wanted)

    async def _known(
        self, answer: LongAnswer, request: MetadataRequest, topic: TopicMetadata
    ) -> MetadataResponseTopic:
        listener = answer.context.listener or self.identity.inter_broker_listener
        partitions = answer.rows(MetadataResponsePartition)
        for index, partition in sorted(topic.partitions.items()):
            if index % _PARTITIONS_PER_STEP == 0:
                await answer.turn(min(_price(topic), _PARTITIONS_PER_STEP * _PARTITION_BYTES))
            partitions.add(self._partition(index, partition, listener))
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions.finish(),
            topic_authorized_operations=(
                authorized_operations(answer.context, AclResource.TOPIC, topic.name)
                if request.include_topic_authorized_operations
                else NOT_ASKED
            ),
        )

    def _partition(
        self, index: int, partition: PartitionMetadata, listener: str
    ) -> MetadataResponsePartition:
        error, leader_id = self.metadata.leader_on(partition, listener)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(partition.offline_replicas),
        )

    def _response(
        self, context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
    ) -> MetadataResponse:
        listener = context.listener or self.identity.inter_broker_listener
        brokers = [
            MetadataResponseBroker(node_id=node.id, host=endpoint[0], port=endpoint[1], rack=node.rack)
            for node in self.metadata.brokers.values()
            if (endpoint := node.endpoint(listener)) is not None
        ]
        controller_id = self.metadata.controller_id
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self.identity.cluster_id,
            controller_id=controller_id if self.metadata.is_live(controller_id) else -1,
            topics=topics,
            cluster_authorized_operations=(
                authorized_operations(context, AclResource.CLUSTER)
                if request.include_cluster_authorized_operations
                else NOT_ASKED
            ),
        )

    def failed(
        self, context: RequestContext, request: MetadataRequest, error: BrokerError
    ) -> MetadataResponse:
        by_name = context.version < _FIRST_VERSION_WITH_IDS  # Then a name is never null in the response.
        topics = [
            _unknown("" if wanted.name is None and by_name else wanted.name, error.code, wanted)
            for wanted in named_once(request.topics or [])
        ]
        return self._response(context, request, topics)


def named_once(wanted: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Each topic once: its partitions may be a thousand times as long as its name."""
    # Few topics are named by their ids, whose hashes are slow.
    return list({topic.topic_id if topic.name is None else topic.name: topic for topic in wanted}.values())


def _may_describe(context: RequestContext, name: str, *, is_noted: bool = True) -> bool:
    return context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_noted=is_noted)


def _named(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


def _unknown(name: str | None, error: ErrorCode, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    topic_id = wanted.topic_id if name is None else ZERO_ID
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _price(topic: TopicMetadata) -> int:
    """The size of a topic's partitions, by the replicas of one of them."""
    one = next(iter(topic.partitions.values()), None)
    replicas = 0 if one is None else len(one.replicas)
    return len(topic.partitions) * (_PARTITION_BYTES + 8 * replicas)
