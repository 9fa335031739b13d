"""What each API asks an authorizer for: the operations, on which kind of resource, and what a denial does.

Handlers carry the rules out where they meet the resources. A test sends every API, in every version, to a
broker that denies everything or one operation, and compares the answers with this table; an API without a row
fails it. `docs/access-rules.md` explains the table to administrators.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from holdfast_log.protocol.acls import AclOperation, AclResource


class Denial(enum.Enum):
    """What becomes of a request, or of a resource in it, without the right."""

    REQUEST = "the request is refused"
    EACH = "the resource is refused, others are not"
    HIDDEN = "the resource is left out"
    DETAIL = "the answer says less"


class Rule(NamedTuple):
    """A right that an API asks for. `instead` is one that will do in its place. `when` says in which requests
    it is asked for; empty: in all."""

    operation: AclOperation
    resource: AclResource
    denial: Denial
    when: str = ""
    instead: tuple[AclOperation, AclResource] | None = None


_TOPIC, _GROUP, _CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
_TRANSACTION = AclResource.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_REQUEST, _EACH, _HIDDEN, _DETAIL = Denial.REQUEST, Denial.EACH, Denial.HIDDEN, Denial.DETAIL

_NAMED = "for topics that it names"
_LISTED = "for topics that it lists"
_PARTITION = "for a partition"
_NAME = "for a name"
_OPERATIONS = "for the list of the client's operations"
_TO_CREATE = "for a missing topic that it would create"
_IDEMPOTENT = "without a transactional id"
_CLUSTER_DESCRIBED = (_DESCRIBE, _CLUSTER)

OPEN: tuple[Rule, ...] = ()
"""The rules of an API that needs no right, or that refuses everybody."""

BROKERS: tuple[Rule, ...] = (Rule(AclOperation.CLUSTER_ACTION, _CLUSTER, _REQUEST),)
"""The rules of an internal API. The right alone does not open it: the connection has to be a broker's."""

_MEMBER = (Rule(_READ, _GROUP, _REQUEST),)
_OWNER = Rule(_READ, _GROUP, _REQUEST, "in a group")

RULES: Mapping[str, tuple[Rule, ...]] = {
    # Data
    "Produce": (
        Rule(_WRITE, _TOPIC, _EACH),
        Rule(_WRITE, _TRANSACTION, _REQUEST, "with a transactional id"),
    ),
    "Fetch": (Rule(_READ, _TOPIC, _EACH),),
    "ListOffsets": (Rule(_DESCRIBE, _TOPIC, _EACH),),
    "OffsetForLeaderEpoch": (Rule(_DESCRIBE, _TOPIC, _EACH),),
    "DeleteRecords": (Rule(_DELETE, _TOPIC, _EACH),),
    "DescribeProducers": (Rule(_READ, _TOPIC, _EACH),),
    "InitProducerId": (
        Rule(AclOperation.IDEMPOTENT_WRITE, _CLUSTER, _REQUEST, _IDEMPOTENT, (_WRITE, _TOPIC)),
        Rule(_WRITE, _TRANSACTION, _REQUEST, "with a transactional id"),
    ),
    # Connections
    "ApiVersions": OPEN,
    "SaslHandshake": OPEN,
    "SaslAuthenticate": OPEN,
    # Topics and the cluster
    "Metadata": (
        Rule(_DESCRIBE, _TOPIC, _EACH, _NAMED),
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, _LISTED),
        Rule(_CREATE, _TOPIC, _EACH, _TO_CREATE, (_CREATE, _CLUSTER)),
        Rule(_DESCRIBE, _CLUSTER, _DETAIL, _OPERATIONS),
    ),
    "DescribeTopicPartitions": (
        Rule(_DESCRIBE, _TOPIC, _EACH, _NAMED),
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, _LISTED),
    ),
    "DescribeCluster": (Rule(_DESCRIBE, _CLUSTER, _DETAIL, _OPERATIONS),),
    "CreateTopics": (
        Rule(_CREATE, _TOPIC, _EACH, instead=(_CREATE, _CLUSTER)),
        Rule(_DESCRIBE_CONFIGS, _TOPIC, _DETAIL, "for the new topic's settings"),
    ),
    "CreatePartitions": (Rule(_ALTER, _TOPIC, _EACH),),
    "DeleteTopics": (
        Rule(_DELETE, _TOPIC, _EACH, instead=(_DELETE, _CLUSTER)),
        Rule(_DESCRIBE, _TOPIC, _EACH, instead=(_DELETE, _CLUSTER)),
    ),
    "ElectLeaders": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "AlterPartitionReassignments": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "ListPartitionReassignments": (Rule(_DESCRIBE, _CLUSTER, _REQUEST),),
    "AlterReplicaLogDirs": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "UpdateFeatures": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "DescribeLogDirs": (Rule(_DESCRIBE, _CLUSTER, _REQUEST),),
    # Settings, quotas, credentials, access control lists
    "DescribeConfigs": (
        Rule(_DESCRIBE_CONFIGS, _TOPIC, _EACH, "for a topic"),
        Rule(_DESCRIBE_CONFIGS, _CLUSTER, _EACH, "for a broker or its loggers"),
    ),
    "AlterConfigs": (
        Rule(_ALTER_CONFIGS, _TOPIC, _EACH, "for a topic"),
        Rule(_ALTER_CONFIGS, _CLUSTER, _EACH, "for a broker"),
    ),
    "IncrementalAlterConfigs": (
        Rule(_ALTER_CONFIGS, _TOPIC, _EACH, "for a topic"),
        Rule(_ALTER_CONFIGS, _CLUSTER, _EACH, "for a broker or its loggers"),
    ),
    "ListConfigResources": (Rule(_DESCRIBE_CONFIGS, _CLUSTER, _REQUEST),),
    "DescribeClientQuotas": (Rule(_DESCRIBE_CONFIGS, _CLUSTER, _REQUEST),),
    "AlterClientQuotas": (Rule(_ALTER_CONFIGS, _CLUSTER, _REQUEST),),
    "DescribeUserScramCredentials": (Rule(_DESCRIBE, _CLUSTER, _REQUEST),),
    "AlterUserScramCredentials": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "DescribeAcls": (Rule(_DESCRIBE, _CLUSTER, _REQUEST),),
    "CreateAcls": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "DeleteAcls": (Rule(_ALTER, _CLUSTER, _REQUEST),),
    "CreateDelegationToken": OPEN,
    "RenewDelegationToken": OPEN,
    "ExpireDelegationToken": OPEN,
    "DescribeDelegationToken": OPEN,
    # Consumer groups
    "FindCoordinator": (
        Rule(_DESCRIBE, _GROUP, _EACH, "for a group"),
        Rule(_DESCRIBE, _TRANSACTION, _EACH, "for a transactional id"),
    ),
    "JoinGroup": _MEMBER,
    "SyncGroup": _MEMBER,
    "Heartbeat": _MEMBER,
    "LeaveGroup": _MEMBER,
    "OffsetCommit": (Rule(_READ, _GROUP, _REQUEST), Rule(_READ, _TOPIC, _EACH)),
    "OffsetFetch": (
        Rule(_DESCRIBE, _GROUP, _EACH),
        Rule(_DESCRIBE, _TOPIC, _EACH, _NAMED),
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, _LISTED),
    ),
    "OffsetDelete": (Rule(_DELETE, _GROUP, _REQUEST), Rule(_READ, _TOPIC, _EACH)),
    "DescribeGroups": (Rule(_DESCRIBE, _GROUP, _EACH),),
    "ListGroups": (Rule(_DESCRIBE, _GROUP, _HIDDEN, instead=_CLUSTER_DESCRIBED),),
    "DeleteGroups": (Rule(_DELETE, _GROUP, _EACH),),
    "ConsumerGroupHeartbeat": (Rule(_READ, _GROUP, _REQUEST), Rule(_DESCRIBE, _TOPIC, _REQUEST)),
    "ConsumerGroupDescribe": (
        Rule(_DESCRIBE, _GROUP, _EACH),
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, "for topics of the members"),
    ),
    # Transactions
    "AddPartitionsToTxn": (
        Rule(_WRITE, _TRANSACTION, _REQUEST, "from a client"),
        Rule(_WRITE, _TOPIC, _EACH, "from a client"),
        Rule(AclOperation.CLUSTER_ACTION, _CLUSTER, _REQUEST, "from a broker"),
    ),
    "AddOffsetsToTxn": (Rule(_WRITE, _TRANSACTION, _REQUEST), Rule(_READ, _GROUP, _REQUEST)),
    "EndTxn": (Rule(_WRITE, _TRANSACTION, _REQUEST),),
    "TxnOffsetCommit": (
        Rule(_WRITE, _TRANSACTION, _REQUEST),
        Rule(_READ, _GROUP, _REQUEST),
        Rule(_READ, _TOPIC, _EACH),
    ),
    "DescribeTransactions": (
        Rule(_DESCRIBE, _TRANSACTION, _EACH),
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, "for topics of a transaction"),
    ),
    "ListTransactions": (Rule(_DESCRIBE, _TRANSACTION, _HIDDEN),),
    "WriteTxnMarkers": (
        Rule(_ALTER, _CLUSTER, _REQUEST, "from a client", (AclOperation.CLUSTER_ACTION, _CLUSTER)),
    ),
    # Groups whose partitions the server assigns
    "CreateGroup": (Rule(_READ, _GROUP, _REQUEST), Rule(_READ, _TOPIC, _REQUEST)),
    "DeleteGroup": (Rule(_DELETE, _GROUP, _EACH),),
    "ListConsumerGroups": (Rule(_DESCRIBE, _GROUP, _HIDDEN, instead=_CLUSTER_DESCRIBED),),
    "RegisterConsumer": _MEMBER,
    "ConsumerHeartbeat": _MEMBER,
    "RewindConsumer": (Rule(_READ, _GROUP, _REQUEST), Rule(_READ, _TOPIC, _REQUEST)),
    # Ownership
    "Own": (
        _OWNER,
        Rule(_WRITE, _TOPIC, _EACH, "for a partition to write"),
        Rule(_READ, _TOPIC, _EACH, "for a partition to read"),
    ),
    "ProducerAccess": (Rule(_WRITE, _TOPIC, _REQUEST),),
    "AttachReader": (_OWNER, Rule(_READ, _TOPIC, _EACH)),
    "Renew": (
        _OWNER,
        Rule(_DESCRIBE, _TOPIC, _EACH, "for a partition in a group"),
        Rule(_WRITE, _TOPIC, _EACH, "for a partition of an exclusive producer"),
    ),
    "Resume": (
        _OWNER,
        Rule(_DESCRIBE, _TOPIC, _EACH, "for a partition in a group, and what its claim has asked for"),
        Rule(_WRITE, _TOPIC, _EACH, "for a partition of an exclusive producer"),
    ),
    "Release": (
        _OWNER,
        Rule(_DESCRIBE, _TOPIC, _EACH, "for a partition in a group"),
        Rule(_WRITE, _TOPIC, _EACH, "for a partition of an exclusive producer"),
    ),
    "CheckToken": (
        Rule(_DESCRIBE, _TOPIC, _REQUEST, _PARTITION),
        Rule(_DESCRIBE, _GROUP, _REQUEST, _NAME),
    ),
    "DescribeOwners": (
        Rule(_DESCRIBE, _TOPIC, _HIDDEN, _PARTITION),
        Rule(_DESCRIBE, _GROUP, _HIDDEN, _NAME),
    ),
    "ForceRelease": (
        Rule(_ALTER, _TOPIC, _EACH, _PARTITION),
        Rule(_ALTER, _CLUSTER, _EACH, _NAME),
    ),
    # Between brokers
    "LeaderAndIsr": BROKERS,
    "StopReplica": BROKERS,
    "UpdateMetadata": BROKERS,
    "ControlledShutdown": BROKERS,
    "AlterPartition": BROKERS,
    "AllocateProducerIds": BROKERS,
    "GetReplicaLogInfo": BROKERS,
    "AssignReaders": BROKERS,
    "YieldLeadership": BROKERS,
    "AuthenticateBroker": OPEN,
}
"""The rights that each API asks for, by its name. Several have to be had together."""
