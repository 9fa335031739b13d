"""The admin client: topics, settings, records, replicas, groups, and what a cluster tells of itself.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        admin.create_topics([NewTopic("flights", partitions=6)])

Values go in and come out as dataclasses. A call about several things does what it can for each and then
raises the first error, if there was one; the error's text names the thing. Not for several threads at once.
"""

from __future__ import annotations

from clients.admin.cluster import ApiSupport, BrokerSupport, ClusterDescription, LogDir, ReplicaSize
from clients.admin.configs import ConfigAdmin, ConfigChange, ConfigEntry, ConfigResource
from clients.admin.groups import GroupDescription, GroupListing, MemberDescription
from clients.admin.managed_groups import ManagedGroupListing
from clients.admin.ownership import OwnershipAdmin, OwnershipDescription, OwnershipWaiter, PastOwnership
from clients.admin.records import ProducerDescription, RecordAdmin
from clients.admin.replicas import Reassignment, ReplicaAdmin
from clients.admin.topics import NewTopic, TopicDescription
from clients.fetching.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from clients.message import OffsetAndMetadata
from protocol.configs import ConfigOperation, ConfigSource, ResourceType
from protocol.messages.elect_leaders import ElectionType

__all__ = [
    "Admin", "NewTopic", "TopicDescription", "ClusterDescription", "ConfigEntry", "ConfigResource",
    "ConfigChange", "ConfigOperation", "ConfigSource", "ResourceType", "LogDir", "ReplicaSize",
    "ProducerDescription", "ElectionType", "Reassignment", "GroupListing", "GroupDescription",
    "MemberDescription", "ManagedGroupListing", "OffsetAndMetadata", "ApiSupport", "BrokerSupport",
    "OwnershipDescription", "OwnershipWaiter", "PastOwnership",
    "OffsetAndTimestamp", "EARLIEST", "LATEST", "MAX_TIMESTAMP",
]  # fmt: skip


class Admin(OwnershipAdmin, ConfigAdmin, RecordAdmin, ReplicaAdmin):
    """Manages a cluster. `properties` are Kafka's, from a dict or a properties file. Raises ConfigError.

    Every method raises BrokerError (one of its subclasses) for what a broker declines, and ClientError where
    none answers within `default.api.timeout.ms`; until then what may pass is tried again.
    """
