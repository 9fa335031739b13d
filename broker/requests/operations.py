"""The operations on a resource, and how responses list a client's authorised ones (KIP-430).

Without an authorizer every client is authorised for all operations of a kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.acls import CLUSTER_NAME, AclOperation, AclResource

NOT_ASKED = -(2**31)
"""Value in responses to clients that did not request their authorised operations."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """A set of operations as the protocol encodes it: one bit for each code."""
    return sum(1 << operation for operation in operations)


OPERATIONS = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that there are on a resource of each kind."""


def authorized_operations(context: RequestContext, resource: AclResource, name: str = CLUSTER_NAME) -> int:
    """The operations on a resource that the client of a request may carry out, as a response lists them. For
    the cluster there are none if it may not describe it."""
    if resource is AclResource.CLUSTER and not context.may(AclOperation.DESCRIBE, resource, name):
        return 0
    return operation_bits(
        each for each in OPERATIONS[resource] if context.may(each, resource, name, is_noted=False)
    )
