"""/controller: the elected controller; /controller_epoch; and /controller_brokers, which Kafka lacks."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.coordinator.znodes.json_values import (
    WRONG_SHAPE,
    BadZnode,
    decode_json,
    decode_number,
    encode_json,
    int32,
)

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONTROLLER_BROKERS = "/controller_brokers"


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    value = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return encode_json(value)


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    try:
        return int32(decode_json(CONTROLLER, data)["brokerid"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER} does not name a broker: {error!r}") from None


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    epoch = decode_number(CONTROLLER_EPOCH, data)
    if not 0 <= epoch < 2**31 - 1:
        raise BadZnode(f"{CONTROLLER_EPOCH} holds {epoch}, which is no controller epoch")
    return epoch


def encode_controller_brokers(epochs: Mapping[int, int]) -> bytes:
    """The broker processes whose arrival a controller has already handled.

    `epochs` maps each live broker's id to the broker epoch of its process's first registration.
    """
    return encode_json(
        {"version": 1, "epochs": {str(broker): epoch for broker, epoch in sorted(epochs.items())}}
    )


def decode_controller_brokers(data: bytes) -> dict[int, int]:
    value = decode_json(CONTROLLER_BROKERS, data)
    try:
        return {int(broker): int(epoch) for broker, epoch in value["epochs"].items()}
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER_BROKERS} does not list broker epochs: {error!r}") from None
