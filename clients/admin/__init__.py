"""The admin client: topics, settings, quotas, records, replicas, groups, owners and brokers.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        admin.create_topics([NewTopic("flights", partitions=6)])

Arguments and results are dataclasses. A call about several things tries each of them and then raises the
first error, if any; the error's text names the thing. Not thread-safe.
"""

from __future__ import annotations

from clients.admin.admin import Admin
from clients.admin.cluster import ApiSupport, BrokerSupport, ClusterDescription, LogDir, ReplicaSize
from clients.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from clients.admin.groups import GroupDescription, GroupListing, MemberDescription
from clients.admin.managed_groups import ManagedGroupListing
from clients.admin.ownership import OwnershipDescription, OwnershipWaiter, PastOwnership, TokenCheck
from clients.admin.quotas import ANY_NAME, ClientQuotaEntity
from clients.admin.records import ProducerDescription
from clients.admin.replicas import Reassignment
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
    "OwnershipDescription", "OwnershipWaiter", "PastOwnership", "TokenCheck",
    "OffsetAndTimestamp", "EARLIEST", "LATEST", "MAX_TIMESTAMP",
    "ANY_NAME", "ClientQuotaEntity",
]  # fmt: skip
