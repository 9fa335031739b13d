"""Enumerations of access control lists, with Kafka's codes: operations, permissions, resources, patterns.

UNKNOWN is the code of a newer peer that this release does not know. ANY and MATCH only occur in filters.
"""

from __future__ import annotations

import enum


class _Codes(enum.IntEnum):
    """Codes of the protocol, of which a newer peer may have more: those are UNKNOWN, code 0."""

    @classmethod
    def _missing_(cls, value: object) -> _Codes | None:
        return cls(0) if isinstance(value, int) and value else None


class AclOperation(_Codes):
    """What a principal does to a resource. ALL is every operation; in a filter ANY is any entry."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(_Codes):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclResource(_Codes):
    """The kind of a resource that has access control lists."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(_Codes):
    """How the name in an entry stands for resources (KIP-290). In a filter MATCH finds all entries that apply
    to the resource of that name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of the kind CLUSTER."""

ANY_NAME = "*"
"""Name of the literal pattern that stands for every resource of a kind."""
