"""What a refused Produce or Fetch says about the partition's leader (KIP-951): who it is and where."""

from __future__ import annotations

from protocol.schema import Int32, struct


@struct
class LeaderIdAndEpoch:
    """The partition's leader and its epoch, with NOT_LEADER_OR_FOLLOWER; -1 where that is not known."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class NodeEndpoint:
    """The address of a broker that `current_leader` names."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None
