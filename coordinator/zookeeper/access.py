"""Who may use a znode, and by which identity a session is known to ZooKeeper (`zookeeper.set.acl`)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field


class ZnodeAccess(enum.Enum):
    """The access control list with which a znode is created."""

    EVERYBODY = "world: all"
    """Every client of ZooKeeper may read, write, create children, delete and change the list."""
    READABLE = "creator: all, world: read"
    """The identity that has created it may do all of this; everybody may read it."""
    CLOSED = "creator: all"
    """Only that identity may use it."""


AccessRule = Callable[[str], ZnodeAccess]
"""The access for a path, relative to the chroot."""


def for_everybody(path: str) -> ZnodeAccess:
    """The rule without `zookeeper.set.acl`."""
    return ZnodeAccess.EVERYBODY


@dataclass(frozen=True, slots=True)
class Identity:
    """How a session authenticates itself, and what it permits others on the znodes that it creates.

    `digest` is USER:PASSWORD for ZooKeeper's scheme digest, `sasl` for its scheme sasl, by the mechanism
    DIGEST-MD5; without both the session does not authenticate itself. With both, what it creates is for each
    of them. A `rule` that permits less than everything to everybody needs one of them.
    """

    digest: str | None = field(default=None, repr=False)
    sasl: str | None = field(default=None, repr=False, kw_only=True)
    rule: AccessRule = for_everybody

    @property
    def restricts(self) -> bool:
        """Whether znodes are created for this identity, not for everybody."""
        return self.rule is not for_everybody
