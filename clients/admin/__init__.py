"""The admin client: topics, settings, quotas, rights, records, replicas, groups, transactions, owners.

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        admin.create_topics([NewTopic("flights", partitions=6)])

Arguments and results are dataclasses. A call about several things tries each of them and then raises the
first error, if any; the error's text names the thing. Not thread-safe.
"""

from __future__ import annotations

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.admin.cluster import ApiSupport, BrokerSupport, ClusterDescription
from holdfast_log.clients.admin.configs import ConfigChange, ConfigEntry, ConfigResource
from holdfast_log.clients.admin.consumer_groups import ConsumerGroupDescription, ConsumerMemberDescription
from holdfast_log.clients.admin.groups import GroupDescription, GroupListing, MemberDescription
from holdfast_log.clients.admin.log_dirs import LogDir, ReplicaSize
from holdfast_log.clients.admin.managed_groups import ManagedGroupListing
from holdfast_log.clients.admin.ownership import (
    OwnershipDescription,
    OwnershipWaiter,
    PastOwnership,
    TokenCheck,
)
from holdfast_log.clients.admin.quotas import ANY_NAME, ClientQuotaEntity
from holdfast_log.clients.admin.records import ProducerDescription
from holdfast_log.clients.admin.replicas import Reassignment
from holdfast_log.clients.admin.scram import NewScramCredential, OldScramCredential
from holdfast_log.clients.admin.topics import NewTopic, TopicDescription
from holdfast_log.clients.admin.transactions import (
    FencedProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
)
from holdfast_log.clients.fetching.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.configs import ConfigOperation, ConfigSource, ResourceType
from holdfast_log.protocol.messages.elect_leaders import ElectionType

__all__ = [
    "Admin", "NewTopic", "TopicDescription", "ClusterDescription", "ConfigEntry", "ConfigResource",
    "ConfigChange", "ConfigOperation", "ConfigSource", "ResourceType", "LogDir", "ReplicaSize",
    "ProducerDescription", "ElectionType", "Reassignment", "GroupListing", "GroupDescription",
    "MemberDescription", "ConsumerGroupDescription", "ConsumerMemberDescription", "ManagedGroupListing",
    "OffsetAndMetadata", "ApiSupport", "BrokerSupport",
    "OwnershipDescription", "OwnershipWaiter", "PastOwnership", "TokenCheck",
    "TransactionListing", "TransactionDescription", "OpenTransaction", "FencedProducer",
    "OffsetAndTimestamp", "EARLIEST", "LATEST", "MAX_TIMESTAMP",
    "ANY_NAME", "ClientQuotaEntity", "NewScramCredential", "OldScramCredential",
    "AclBinding", "AclEntry", "AclFilter", "ResourcePattern",
    "AclOperation", "AclPattern", "AclPermission", "AclResource",
]  # fmt: skip
