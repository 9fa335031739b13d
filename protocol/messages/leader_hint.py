"""The partition's leader and its address, in the answer to a refused Produce or Fetch (KIP-951)."""

from __future__ import annotations

from holdfast_log.protocol.schema import Int32, struct


@struct
class LeaderIdAndEpoch:
    """The partition's leader and its epoch, with NOT_LEADER_OR_FOLLOWER; -1 if unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class NodeEndpoint:
    """The address of a broker that `current_leader` names."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
