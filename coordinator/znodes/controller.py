"""Who decides: /controller and /controller_epoch; and /controller_brokers, which is not one of Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.znodes.json import WRONG_SHAPE, BadZnode, decode_json, decode_number, encode_json
from coordinator.znodes.paths import CONTROLLER, CONTROLLER_BROKERS, CONTROLLER_EPOCH


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    value = {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return encode_json(value)


def decode_controller(data: bytes) -> int:
    """The controller's broker id."""
    try:
        return int(decode_json(CONTROLLER, data)["brokerid"])
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER} does not name a broker: {error!r}") from None


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    return decode_number(CONTROLLER_EPOCH, data)


def encode_controller_brokers(epochs: Mapping[int, int]) -> bytes:
    """Which lives of brokers the controllers have dealt with.

    `epochs` has, by the id of each broker that was alive, the epoch under which its process registered
    first.
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
