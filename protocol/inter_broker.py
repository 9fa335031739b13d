"""The protocol between brokers, by its version (`inter.broker.protocol.version`).

A version stands for everything that one broker sends another, and for what brokers write into znodes and log
directories for others to read. Brokers of two releases work together as long as all use a version that both
speak. Fields, znodes and files that a broker of an earlier version passes over are written in any version.

To send other brokers a newer version of a request, or anything that brokers of the newest version here would
misread, add a version: a row in `REQUESTS`, and a name for the first version of what is new.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.protocol.api import Api

OLDEST = 1
"""The version of brokers that announce none."""
CREATIONS_NAME_CLIENTS = 2
"""First version in which a broker that has a topic created names the client that has asked for it, so that
the controller's audit log names that client."""
NEWEST = 2

_FIRST: Mapping[str, int] = {
    "AllocateProducerIds": 0,
    "AlterPartition": 3,
    "AssignReaders": 0,
    "AuthenticateBroker": 0,
    "ControlledShutdown": 3,
    "CreateGroup": 0,
    "CreateTopics": 7,
    "Fetch": 16,
    "GetReplicaLogInfo": 0,
    "LeaderAndIsr": 7,
    "ListConsumerGroups": 0,
    "ListOffsets": 7,
    "OffsetForLeaderEpoch": 4,
    "StopReplica": 4,
    "UpdateMetadata": 8,
    "YieldLeadership": 0,
}

REQUESTS: Mapping[int, Mapping[str, int]] = {1: _FIRST, 2: {**_FIRST, "WriteTxnMarkers": 1}}
"""By version of the protocol: the newest version of each request that one broker sends another."""


def request_version(api: Api, protocol: int) -> int:
    """The version in which a broker that uses a version of the protocol sends a request to another broker."""
    return REQUESTS[protocol].get(api.name, api.max_version)
