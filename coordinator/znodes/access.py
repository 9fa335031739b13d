"""Which znodes others may read and write if brokers restrict them (`zookeeper.set.acl`), by Kafka's rule.

Others may read what is no secret. They may not read what can hold a credential: the settings of users and
brokers, delegation tokens, the secret of SCRAM, and the owners with the digests of their secrets. Everybody
may write below /consumers, where old clients kept their own offsets.
"""

from __future__ import annotations

from holdfast_log.coordinator.znodes.configs import CONFIG
from holdfast_log.coordinator.znodes.layout import CONSUMERS
from holdfast_log.coordinator.zookeeper.access import ZnodeAccess

_CLOSED = (
    f"{CONFIG}/users",
    f"{CONFIG}/brokers",
    "/delegation_token/tokens",
    "/holdfast/ownership",
    "/holdfast/security",
)

ROOTS = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/consumers",
    "/controller",
    "/controller_brokers",
    "/controller_epoch",
    "/delegation_token",
    "/feature",
    "/holdfast",
    "/isr_change_notification",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/migration",
)
"""The znodes of a cluster, Kafka's and ours, directly below its root. Beside them may be those of others."""


def restricted(path: str) -> ZnodeAccess:
    """The access to a znode of a cluster that restricts its znodes. `path` is relative to the chroot."""
    if _is_under(path, CONSUMERS):
        return ZnodeAccess.EVERYBODY
    if any(_is_under(path, closed) for closed in _CLOSED):
        return ZnodeAccess.CLOSED
    return ZnodeAccess.READABLE


def _is_under(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent + "/")
