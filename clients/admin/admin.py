"""The admin client. Each method hands its request to the file of this folder that knows the subject."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from holdfast_log.clients.admin import (
    cluster,
    configs,
    consumer_groups,
    groups,
    log_dirs,
    managed_groups,
    ownership,
    records,
    replicas,
)
from holdfast_log.clients.admin import topics as topic_calls
from holdfast_log.clients.admin.arguments import (
    A_BROKER,
    A_TOKEN,
    AN_ELECTION,
    ANY_GENERATION,
    ASSIGNMENTS,
    BROKERS,
    CONFIG_CHANGES,
    CONFIG_RESOURCES,
    COUNTS,
    DIRECTORIES,
    NAMES,
    NEW_TOPICS,
    OFFSETS_TO_DELETE,
    TARGETS,
    TEXTS,
)
from holdfast_log.clients.admin.asking import Asking
from holdfast_log.clients.admin.cluster import BrokerSupport, ClusterDescription
from holdfast_log.clients.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from holdfast_log.clients.admin.consumer_groups import ConsumerGroupDescription
from holdfast_log.clients.admin.groups import GroupDescription, GroupListing
from holdfast_log.clients.admin.log_dirs import LogDir
from holdfast_log.clients.admin.managed_groups import ManagedGroupListing
from holdfast_log.clients.admin.ownership import OwnershipDescription, TokenCheck
from holdfast_log.clients.admin.replicas import Reassignment
from holdfast_log.clients.admin.rights import RightsCalls
from holdfast_log.clients.admin.topics import NewTopic, TopicDescription
from holdfast_log.clients.admin.transaction_calls import TransactionCalls
from holdfast_log.clients.arguments import (
    A_FLAG,
    A_FUNCTION,
    A_NAME,
    A_NETWORK,
    A_TEXT,
    A_WAIT,
    AN_RNG,
    PARTITIONS,
    PROPERTIES,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties, admin_settings
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fetching.arguments import OFFSETS, OFFSETS_TO_COMMIT, TIMES
from holdfast_log.clients.fetching.offsets import OffsetAndTimestamp
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.clients.ownership.arguments import A_RESOURCE, RESOURCES
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.elect_leaders import ElectionType
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.feedback.snapshots import AdminFeedback


class Admin(RightsCalls, TransactionCalls):
    """Manages a cluster. `properties` are Kafka's, as a dict or the path of a file. Raises ConfigError.

    Every method raises BrokerError (one of its subclasses) if a broker refuses the request, and ClientError
    if none answers within `default.api.timeout.ms`; until then retriable errors are retried. Not thread-safe,
    except for `feedback`.
    """

    @checked(
        properties=PROPERTIES,
        network=optional(A_NETWORK),
        rng=optional(AN_RNG),
        on_event=optional(A_FUNCTION),
    )
    def __init__(
        self,
        properties: Properties,
        *,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.settings = admin_settings(properties)
        self._connection = Connection(
            self.settings["bootstrap.servers"],
            self.settings,
            network=network,
            rng=rng,
            on_event=on_event,
            kind="admin",
        )
        self._asking = Asking(
            self._connection, self.settings["default.api.timeout.ms"], self.settings["retry.backoff.ms"]
        )

    # Topics -------------------------------------------------------------------------------------------

    @checked(topics=NEW_TOPICS, validate_only=A_FLAG, retry_on_quota_violation=A_FLAG)
    def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> None:
        """Create topics. Raises TopicExistsError, InvalidTopicError, InvalidConfigError and others.

        Without `retry_on_quota_violation` QuotaExceededError is raised at once where the client's quota of
        created and deleted partitions refuses a topic; otherwise only if the throttle time ends after the
        timeout (KIP-599).
        """
        topic_calls.create_topics(
            self._asking,
            topics,
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    @checked(names=NAMES, retry_on_quota_violation=A_FLAG)
    def delete_topics(self, names: Iterable[str], *, retry_on_quota_violation: bool = True) -> None:
        """Delete topics with all their records. Raises UnknownTopicOrPartitionError and others.

        `retry_on_quota_violation` is as in `create_topics`.
        """
        topic_calls.delete_topics(self._asking, names, retry_on_quota_violation=retry_on_quota_violation)

    @checked(
        counts=COUNTS,
        assignments=optional(ASSIGNMENTS),
        validate_only=A_FLAG,
        retry_on_quota_violation=A_FLAG,
    )
    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
    ) -> None:
        """Raise topics' numbers of partitions to `counts`.

        `assignments` gives the replicas of each new partition, preferred leader first.
        `retry_on_quota_violation` is as in `create_topics`.
        """
        topic_calls.create_partitions(
            self._asking,
            counts,
            assignments=assignments,
            validate_only=validate_only,
            retry_on_quota_violation=retry_on_quota_violation,
        )

    @checked(include_internal=A_FLAG)
    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        return topic_calls.list_topics(self._asking, include_internal=include_internal)

    @checked(names=optional(NAMES))
    def describe_topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        """The topics of these names, or all topics. Raises UnknownTopicOrPartitionError and others."""
        return topic_calls.describe_topics(self._asking, names)

    # The cluster --------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        """The live brokers, and the controller."""
        return cluster.describe_cluster(self._asking)

    @checked(node=A_BROKER)
    def describe_api_versions(self, node: int) -> BrokerSupport:
        """The APIs and features of a broker. An API that the broker lacks is listed without versions."""
        return cluster.describe_api_versions(self._asking, node)

    @checked(nodes=optional(BROKERS), topics=optional(NAMES))
    def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> list[LogDir]:
        """The log directories of these brokers, with the replicas of these topics. None stands for all."""
        return log_dirs.describe_log_dirs(self._asking, nodes, topics)

    @checked(node=A_BROKER, directories=DIRECTORIES)
    def alter_replica_log_dirs(
        self, node: int, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Move a broker's replicas to these of its log directories (KIP-113), by their absolute paths.

        Returns each partition's error, or None. REPLICA_NOT_AVAILABLE: the broker has no replica of the
        partition yet, and will create it there. `describe_log_dirs` shows a replica that moves as a future
        one in its new directory; asking for the directory in which it is ends the move.
        """
        return log_dirs.alter_replica_log_dirs(self._asking, node, directories)

    # Settings -----------------------------------------------------------------------------------------

    @checked(resources=CONFIG_RESOURCES, include_documentation=A_FLAG)
    def describe_configs(
        self, resources: Iterable[ConfigResource], *, include_documentation: bool = False
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """The settings in force of topics and brokers, default values included."""
        return configs.describe_configs(self._asking, resources, include_documentation=include_documentation)

    @checked(changes=CONFIG_CHANGES, validate_only=A_FLAG, absent=BROKERS)
    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        absent: Collection[int] = (),
    ) -> None:
        """Change single settings and leave the others as they are (KIP-339). Raises InvalidConfigError.

        The settings of brokers in `absent`, which do not run, are changed through another broker.
        """
        configs.alter_configs(self._asking, changes, validate_only=validate_only, absent=absent)

    # Records ------------------------------------------------------------------------------------------

    @checked(times=TIMES)
    def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offsets of EARLIEST, LATEST, MAX_TIMESTAMP, or of times in ms since the epoch.

        Offset -1 means that no record has that time or a later one.
        """
        return records.list_offsets(self._asking, times)

    @checked(before=OFFSETS_TO_DELETE)
    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets; -1 deletes all records.

        Returns each partition's new log start offset.
        """
        return records.delete_records(self._asking, before)

    # Replicas -----------------------------------------------------------------------------------------

    @checked(election=AN_ELECTION, partitions=optional(PARTITIONS))
    def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders of these partitions, or of all (KIP-460). Returns each partition's error, or None.

        ELECTION_NOT_NEEDED means that the partition already has the leader asked for.
        """
        return replicas.elect_leaders(self._asking, election, partitions)

    @checked(targets=TARGETS)
    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Begin to move partitions to these brokers, preferred leader first (KIP-455). None cancels a move.

        Returns each partition's error, or None. `list_partition_reassignments` shows the progress.
        """
        return replicas.alter_partition_reassignments(self._asking, targets)

    @checked(partitions=optional(PARTITIONS))
    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves in progress, of these partitions or of all."""
        return replicas.list_partition_reassignments(self._asking, partitions)

    # Groups -------------------------------------------------------------------------------------------

    @checked(states=NAMES, types=NAMES)
    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """The groups in these states and of these types, sorted by name; empty filters match all groups."""
        return groups.list_groups(self._asking, states, types)

    @checked(group_ids=NAMES)
    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups. A group that does not exist has the state Dead."""
        return groups.describe_groups(self._asking, group_ids)

    @checked(group_ids=NAMES)
    def describe_consumer_groups(self, group_ids: Iterable[str]) -> dict[str, ConsumerGroupDescription]:
        """Epochs, members and assignments of groups of KIP-848. Other groups are left out."""
        return consumer_groups.describe_consumer_groups(self._asking, group_ids)

    @checked(group_ids=NAMES)
    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, and their offsets.

        Raises GroupNotEmptyError, GroupNotFoundError and others.
        """
        groups.delete_groups(self._asking, group_ids)

    @checked(group_id=A_NAME, partitions=optional(PARTITIONS))
    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets, for these partitions or all. Partitions without one are left out."""
        return groups.list_group_offsets(self._asking, group_id, partitions)

    @checked(group_id=A_NAME, offsets=OFFSETS_TO_COMMIT)
    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Set the committed offsets of a group without members. Creates the group if it does not exist.

        Raises GroupNotEmptyError and others.
        """
        groups.alter_group_offsets(self._asking, group_id, offsets)

    @checked(group_id=A_NAME, partitions=PARTITIONS)
    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of partitions whose topics no member subscribes to."""
        groups.delete_group_offsets(self._asking, group_id, partitions)

    # Managed groups -----------------------------------------------------------------------------------

    @checked(
        group_id=A_NAME,
        topics=NAMES,
        session_timeout_ms=A_WAIT,
        ephemeral=A_FLAG,
        assignor=A_TEXT,
        single_reader=A_FLAG,
    )
    def create_managed_group(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        session_timeout_ms: int = 45_000,
        ephemeral: bool = False,
        assignor: str = "",
        single_reader: bool = False,
    ) -> None:
        """Create a managed group. If it exists with the same other properties, add the topics to it.

        An `ephemeral` group is deleted when its last member leaves. `assignor` is range, roundrobin or
        sticky, or empty for the coordinator's default. With `single_reader`, brokers let only the member
        that has a partition read it (`group.single.reader`). Raises BrokerError
        (INCONSISTENT_GROUP_PROTOCOL) and others.
        """
        managed_groups.create_managed_group(
            self._asking,
            group_id,
            topics,
            session_timeout_ms=session_timeout_ms,
            ephemeral=ephemeral,
            assignor=assignor,
            single_reader=single_reader,
        )

    @checked(group_ids=NAMES)
    def delete_managed_groups(self, group_ids: Iterable[str]) -> None:
        """Delete managed groups that have no members and are not ephemeral.

        Raises GroupNotEmptyError, GroupNotFoundError and others.
        """
        managed_groups.delete_managed_groups(self._asking, group_ids)

    @checked(group_ids=NAMES)
    def list_managed_groups(self, group_ids: Iterable[str] = ()) -> list[ManagedGroupListing]:
        """The managed groups of these names, or all, sorted by name; names that do not exist are left out."""
        return managed_groups.list_managed_groups(self._asking, group_ids)

    @checked(group_id=A_NAME, offsets=OFFSETS)
    def rewind_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move a managed group to these offsets while it works. Returns the partitions' new offsets.

        Waits until the members have stopped and registered again. Raises GroupNotFoundError,
        UnknownTopicOrPartitionError, OffsetOutOfRangeError and others.
        """
        return managed_groups.rewind_group(self._asking, group_id, offsets)

    # Ownership ----------------------------------------------------------------------------------------

    @checked(groups=optional(TEXTS), resources=optional(RESOURCES), include_history=A_FLAG)
    def describe_owners(
        self,
        groups: Iterable[str] | None = None,
        resources: Iterable[TopicPartition | str] | None = None,
        *,
        include_history: bool = False,
    ) -> list[OwnershipDescription]:
        """The owned resources of these groups, or of all; only these partitions and names, or all.

        Names are listed if `groups` has their group, or if a client has asked about them recently.
        """
        return ownership.describe_owners(self._asking, groups, resources, include_history=include_history)

    @checked(group=A_TEXT, resource=A_RESOURCE, generation=ANY_GENERATION, comment=A_TEXT)
    def force_release(
        self, group: str, resource: TopicPartition | str, *, generation: int = -1, comment: str = ""
    ) -> tuple[int, str | None]:
        """Take a resource from its owner, whose connection is closed and who cannot resume.

        `generation` is the one to end: a later owner keeps the resource; -1 ends any. `comment` goes to the
        broker's audit log. An owner that is away and could come back counts as one. Returns the generation
        that was ended, and the owner's id. Raises BrokerError: RESOURCE_NOT_FOUND if nobody in the group has
        the resource, or has it in another generation.
        """
        return ownership.force_release(self._asking, group, resource, generation=generation, comment=comment)

    @checked(group=A_TEXT, resource=A_RESOURCE, token=A_TOKEN)
    def check_token(self, group: str, resource: TopicPartition | str, token: int) -> TokenCheck:
        """Whether `token` (`Lease.token`) is that of the newest grant of the resource.

        `group` is empty for exclusive producers. The broker that decides about the resource answers, and only
        while it cannot have been replaced. The answer may be out of date when it arrives: a storage that must
        never accept an older owner compares tokens itself (docs/tokens.md). Raises BrokerError, such as
        RESOURCE_NOT_FOUND for a token that was never granted.
        """
        return ownership.check_token(self._asking, group, resource, token)

    # The client itself --------------------------------------------------------------------------------

    def feedback(self) -> AdminFeedback:
        """Counts of requests so far. Thread-safe."""
        from holdfast_log.clients.feedback.snapshots import AdminFeedback  # Slow to import, seldom used.

        return AdminFeedback(self._connection.feedback(), self._asking.retries)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
