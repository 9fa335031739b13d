"""Znodes that exist once per cluster: /cluster/id, /brokers/seqid, /latest_producer_id_block, a secret."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json

CLUSTER_ID = "/cluster/id"
BROKER_SEQUENCE = "/brokers/seqid"
"""No data: the version of the znode is the last broker id that was generated."""

PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CLOCK = "/holdfast/clock"
"""Holdfast's own, without data: a broker that starts writes it, because the stat that ZooKeeper answers has
ZooKeeper's time."""
SASL_SECRET = "/holdfast/security/sasl_secret"
"""Holdfast's own: see `coordinator.cluster.sasl_secret`."""


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    value = decode_json(CLUSTER_ID, data).get("id")
    if not isinstance(value, str):
        raise BadZnode(f"{CLUSTER_ID} holds no id")
    return value


def encode_secret(secret: bytes) -> bytes:
    return encode_json({"version": 1, "secret": secret.hex()})


def decode_secret(data: bytes) -> bytes:
    """Raises `BadZnode`."""
    try:
        secret = bytes.fromhex(decode_json(SASL_SECRET, data)["secret"])
    except WRONG_SHAPE:
        raise BadZnode(f"{SASL_SECRET} holds no secret: remove it, so that brokers make another") from None
    return secret


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids `first` to `last`, inclusive, reserved for broker `broker_id`."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The bounds are text, as Kafka writes them."""
    return encode_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    value = decode_json(PRODUCER_ID_BLOCK, data)
    try:
        block = ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
        if not 0 <= block.first <= block.last < 2**63:
            raise ValueError(f"ids {block.first} to {block.last} are no block")
        return block
    except WRONG_SHAPE as error:
        raise BadZnode(f"{PRODUCER_ID_BLOCK} does not hold a block: {error!r}") from None
