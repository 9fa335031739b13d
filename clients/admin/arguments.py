"""The arguments of the admin client."""

from __future__ import annotations

import math
from typing import Any, Final

from holdfast_log.clients.admin.configs import ConfigChange, ConfigResource
from holdfast_log.clients.admin.quotas import ClientQuotaEntity
from holdfast_log.clients.admin.scram import NewScramCredential, OldScramCredential
from holdfast_log.clients.admin.topics import NewTopic
from holdfast_log.clients.admin.transactions import OpenTransaction
from holdfast_log.clients.arguments import (
    A_NAME,
    A_PARTITION,
    A_TEXT,
    INT_MAX,
    LONG_MAX,
    Kind,
    OutOfRange,
    Refused,
    an_instance,
    an_int,
    mapping,
    optional,
    several,
)
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.configs import ConfigOperation, ResourceType
from holdfast_log.protocol.messages.elect_leaders import ElectionType

_BROKER_DEFAULT = -1


def _fields(value: Any, kinds: dict[str, Kind]) -> Any:
    """The value itself, if each field is of its kind."""
    for name, kind in kinds.items():
        field = getattr(value, name)
        try:
            kind.take(field)
        except Refused as refusal:
            refusal.wanted = f"{type(value).__name__}s whose {name} is {refusal.wanted or kind.wanted}"
            refusal.value = field if refusal.value is ... else refusal.value
            raise
    return value


def _take_new_topic(value: Any) -> NewTopic:
    if not isinstance(value, NewTopic):
        raise Refused(f"write NewTopic({value!r}, partitions=1)" if isinstance(value, str) else "")
    topic: NewTopic = _fields(value, _OF_NEW_TOPIC)
    return topic


def _take_config_resource(value: Any) -> ConfigResource:
    if not isinstance(value, ConfigResource):
        raise Refused("write ConfigResource(ResourceType.TOPIC, 'topic')")
    resource: ConfigResource = _fields(value, _OF_RESOURCE)
    is_number = resource.name.isascii() and resource.name.isdigit() and int(resource.name) <= INT_MAX
    if resource.type is ResourceType.BROKER and resource.name and not is_number:
        raise OutOfRange("the name of a broker is its id, or empty for the defaults of all brokers")
    if resource.type is ResourceType.BROKER_LOGGER and not is_number:
        raise OutOfRange("the name of a broker's loggers is the broker's id")
    return resource


def _take_config_change(value: Any) -> ConfigChange:
    if not isinstance(value, ConfigChange):
        raise Refused("write ConfigChange('name', 'value')")
    change: ConfigChange = _fields(value, _OF_CHANGE)
    return change


def _take_quota_entity(value: Any) -> ClientQuotaEntity:
    if not isinstance(value, ClientQuotaEntity):
        raise Refused("write ClientQuotaEntity.of(client_id='name')")
    try:
        for kind, name in value.components:
            A_NAME.take(kind)
            optional(A_TEXT).take(name)
    except (TypeError, ValueError):
        raise Refused("write ClientQuotaEntity.of(client_id='name')") from None
    return value


def _take_scram_change(value: Any) -> NewScramCredential | OldScramCredential:
    if not isinstance(value, NewScramCredential | OldScramCredential):
        raise Refused("write NewScramCredential('user', 'password') or OldScramCredential('user')")
    return value


def _take_open_transaction(value: Any) -> OpenTransaction:
    if not isinstance(value, OpenTransaction):
        raise Refused("write OpenTransaction(TopicPartition('topic', 0), producer_id, producer_epoch)")
    found: OpenTransaction = _fields(value, _OF_OPEN_TRANSACTION)
    return found


def _take_quota(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused
    if not math.isfinite(value) or abs(value) > LONG_MAX:
        raise OutOfRange
    return float(value)


def _take_acl_binding(value: Any) -> AclBinding:
    if not isinstance(value, AclBinding):
        raise Refused(f"write {_AN_ACL_BINDING}")
    for part, of in ((value.pattern, ResourcePattern), (value.entry, AclEntry)):
        if not isinstance(part, of):
            raise Refused(f"write {_AN_ACL_BINDING}", value=part)
    _fields(value.pattern, _OF_ACL_PATTERN)
    _fields(value.entry, _OF_ACL_ENTRY)
    return value


def _take_acl_filter(value: Any) -> AclFilter:
    if not isinstance(value, AclFilter):
        raise Refused("write AclFilter(AclResource.TOPIC, 'orders')")
    found: AclFilter = _fields(value, _OF_ACL_FILTER)
    return found


_AN_ACL_BINDING: Final = (
    "AclBinding(ResourcePattern(AclResource.TOPIC, 'orders'), "
    "AclEntry('User:anna', '*', AclOperation.READ, AclPermission.ALLOW))"
)
A_BROKER: Final = an_int("the id of a broker, an int from 0 on", 0, INT_MAX)
BROKERS: Final = several(A_BROKER, "brokers' ids (int)", "[1, 2]")
_REPLICA_LISTS: Final = several(BROKERS, "lists of brokers' ids (int)", "[[1, 2], [2, 3]]")
NAMES: Final = several(A_NAME, "names (str)", "['name']")
TEXTS: Final = several(A_TEXT, "names (str)", "['name']")
_A_NUMBER: Final = an_int("an int from 1 on, or -1 for the broker's default", _BROKER_DEFAULT, INT_MAX)
_OF_NEW_TOPIC: Final = {
    "name": A_TEXT,
    "partitions": _A_NUMBER,
    "replication_factor": an_int("an int from 1 on, or -1 for the broker's default", -1, 2**15 - 1),
    "configs": mapping(A_NAME, optional(A_TEXT), "{'retention.ms': '1000'}"),
    "assignment": optional(
        mapping(an_int("the number of a partition", 0, INT_MAX), BROKERS, "{0: [1, 2], 1: [2, 3]}")
    ),
}
_OF_RESOURCE: Final = {
    "type": an_instance(ResourceType, "ResourceType.TOPIC or ResourceType.BROKER"),
    "name": A_TEXT,
}
_OF_CHANGE: Final = {
    "name": A_NAME,
    "value": optional(A_TEXT),
    "operation": an_instance(ConfigOperation),
}
_OF_ACL_PATTERN: Final = {
    "resource": an_instance(AclResource),
    "name": A_NAME,
    "pattern": an_instance(AclPattern),
}
_OF_ACL_ENTRY: Final = {
    "principal": A_NAME,
    "host": A_NAME,
    "operation": an_instance(AclOperation),
    "permission": an_instance(AclPermission),
}
_OF_ACL_FILTER: Final = {
    "resource": an_instance(AclResource),
    "name": optional(A_TEXT),
    "pattern": an_instance(AclPattern),
    "principal": optional(A_TEXT),
    "host": optional(A_TEXT),
    "operation": an_instance(AclOperation),
    "permission": an_instance(AclPermission),
}
ACL_BINDINGS: Final = several(Kind("an AclBinding", _take_acl_binding), "AclBinding", f"[{_AN_ACL_BINDING}]")
AN_ACL_FILTER: Final = Kind("an AclFilter", _take_acl_filter)
ACL_FILTERS: Final = several(AN_ACL_FILTER, "AclFilter", "[AclFilter(AclResource.TOPIC, 'orders')]")
NEW_TOPICS: Final = several(
    Kind("a NewTopic", _take_new_topic), "NewTopic", "[NewTopic('name', partitions=1)]"
)
COUNTS: Final = mapping(
    A_NAME, an_int("a number of partitions, an int from 1 on", 1, INT_MAX), "{'topic': 6}"
)
ASSIGNMENTS: Final = mapping(A_NAME, _REPLICA_LISTS, "{'topic': [[1, 2], [2, 3]]}")
_A_CONFIG_RESOURCE: Final = Kind("a ConfigResource", _take_config_resource)
CONFIG_RESOURCES: Final = several(
    _A_CONFIG_RESOURCE, "ConfigResource(type, name)", "[ConfigResource(ResourceType.TOPIC, 'topic')]"
)
CONFIG_CHANGES: Final = mapping(
    _A_CONFIG_RESOURCE,
    several(Kind("a ConfigChange", _take_config_change), "ConfigChange", "[ConfigChange('name', 'value')]"),
    "{ConfigResource(ResourceType.TOPIC, 'topic'): [ConfigChange('retention.ms', '1000')]}",
)
QUOTA_NAMES: Final = mapping(A_NAME, optional(A_TEXT), "{'client-id': 'name'}")
QUOTA_CHANGES: Final = mapping(
    Kind("a ClientQuotaEntity", _take_quota_entity),
    mapping(A_NAME, optional(Kind("a number", _take_quota)), "{'producer_byte_rate': 1e6}"),
    "{ClientQuotaEntity.of(client_id='name'): {'producer_byte_rate': 1e6}}",
)
SCRAM_CHANGES: Final = several(
    Kind("a change of a SCRAM credential", _take_scram_change),
    "NewScramCredential or OldScramCredential",
    "[NewScramCredential('user', 'password')]",
)
OFFSETS_TO_DELETE: Final = mapping(
    A_PARTITION, an_int("an offset, or -1 for all records", -1, LONG_MAX), "{TopicPartition('topic', 0): 5}"
)
PRODUCER_IDS: Final = several(
    an_int("a producer's id, an int from 0 on", 0, LONG_MAX), "producers' ids (int)", "[1000, 1001]"
)
_OF_OPEN_TRANSACTION: Final = {
    "partition": A_PARTITION,
    "producer_id": an_int("a producer's id, an int from 0 on", 0, LONG_MAX),
    "producer_epoch": an_int("a producer's epoch, an int from 0 on", 0, 2**15 - 1),
    "coordinator_epoch": an_int("a coordinator's epoch, an int from 0 on, or -1 for none", -1, INT_MAX),
}
AN_OPEN_TRANSACTION: Final = Kind("an OpenTransaction", _take_open_transaction)
AN_ELECTION: Final = an_instance(ElectionType, "ElectionType.PREFERRED or ElectionType.UNCLEAN")
TARGETS: Final = mapping(A_PARTITION, optional(BROKERS), "{TopicPartition('topic', 0): [1, 2]}")
DIRECTORIES: Final = mapping(A_PARTITION, A_NAME, "{TopicPartition('topic', 0): '/data/2'}")
A_TOKEN: Final = an_int("a token, an int from 0 on, as Lease.token() returns it", -1, LONG_MAX)
ANY_GENERATION: Final = an_int("a generation, an int; -1 for any", -1, LONG_MAX)
