"""The operations on a resource, and how responses list a client's authorised ones (KIP-430).

Without an authorizer every client is authorised for all operations of a kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.protocol.acls import AclOperation

NOT_ASKED = -(2**31)
"""Value in responses to clients that did not request their authorised operations."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """A set of operations as the protocol encodes it: one bit for each code."""
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = operation_bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)
GROUP_OPERATIONS = operation_bits((AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE))
CLUSTER_OPERATIONS = operation_bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    )
)
