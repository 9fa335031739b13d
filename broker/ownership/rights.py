"""What clients need the right to, to own resources, to see their owners and to take resources from them.

A group's resources are its members': to claim, keep or release one a client needs READ of the group. A
partition needs WRITE or READ of its topic besides, as its owner writes or reads it. Partitions of exclusive
producers belong to no group.
"""

from __future__ import annotations

from holdfast_log.broker.ownership.requests import Judge, NamedResource
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP, Access


def check_member(context: RequestContext, group: str) -> None:
    """Raises BrokerError GROUP_AUTHORIZATION_FAILED if the client may not own resources in the group."""
    if group != PRODUCERS_GROUP:
        context.check(AclOperation.READ, AclResource.GROUP, group)


def operations_of(access: int) -> list[AclOperation]:
    """What an owner with this access does to the topic of its partition."""
    operations = []
    if access & Access.WRITE:
        operations.append(AclOperation.WRITE)
    if access & Access.READ:
        operations.append(AclOperation.READ)
    return operations


def may_own(context: RequestContext, access: int) -> Judge:
    """Judges a claim: a partition's owner needs the right to what it excludes others from."""

    def judge(resource: NamedResource) -> BrokerError | None:
        if resource.partition == NO_PARTITION:
            return None
        for operation in operations_of(access):
            denied = context.denial(operation, AclResource.TOPIC, resource.name)
            if denied is not None:
                return denied
        return None

    return judge


def may_keep(context: RequestContext, group: str) -> Judge:
    """Judges what an owner does with what it holds: it has to be allowed to see the topic, an exclusive
    producer to write to it."""
    operation = AclOperation.WRITE if group == PRODUCERS_GROUP else AclOperation.DESCRIBE

    def judge(resource: NamedResource) -> BrokerError | None:
        if resource.partition == NO_PARTITION:
            return None
        return context.denial(operation, AclResource.TOPIC, resource.name)

    return judge


def may_take(context: RequestContext) -> Judge:
    """Judges a forced release: of a partition ALTER of its topic, of a name ALTER of the cluster."""

    def judge(resource: NamedResource) -> BrokerError | None:
        if resource.partition == NO_PARTITION:
            return context.denial(AclOperation.ALTER, AclResource.CLUSTER)
        return context.denial(AclOperation.ALTER, AclResource.TOPIC, resource.name)

    return judge


def may_see(context: RequestContext, group: str, name: str, partition: int) -> bool:
    """Whether the client may know who owns a resource: it may describe the topic, or the group of a name."""
    if partition == NO_PARTITION:
        return context.may(AclOperation.DESCRIBE, AclResource.GROUP, group, is_noted=False)
    return context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, is_noted=False)
