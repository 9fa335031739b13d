"""The operations on a resource, and how responses list those that a client is authorised for (KIP-430).

Without an authorizer every client is authorised for all operations that its kind of resource has.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

NOT_ASKED = -(2**31)
"""In responses to clients that did not ask for their authorised operations."""


class AclOperation(enum.IntEnum):
    """Kafka's numbers of the operations that access control lists speak of."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """A set of operations as the protocol writes it."""
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
