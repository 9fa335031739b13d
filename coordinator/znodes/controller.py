"""/controller: the elected controller; /controller_epoch; and /controller_brokers, which Kafka lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_log.coordinator.znodes.brokers import TRANSACTION_VERSION
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


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """What the cluster has decided on: the version of transactions. Each other decision has a higher `epoch`,
    from 1 on, by which clients recognise the latest (KIP-584)."""

    transaction_version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FeatureRecord:
    """The version of transactions up to which each broker goes that was ever seen to say so, by its id, and
    what was decided; None if nothing was."""

    transaction_versions: Mapping[int, int] = field(default_factory=dict)
    finalized: FinalizedFeatures | None = None


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


def encode_controller_brokers(epochs: Mapping[int, int], features: FeatureRecord | None = None) -> bytes:
    """The broker processes whose arrival a controller has already handled, and their features.

    `epochs` maps each live broker's id to the broker epoch of its process's first registration.
    """
    value: dict[str, Any] = {"version": 1, "epochs": _by_broker(epochs)}
    if features is not None and features.transaction_versions:
        value["transaction_versions"] = _by_broker(features.transaction_versions)
    if features is not None and features.finalized is not None:
        value["features"] = {TRANSACTION_VERSION: features.finalized.transaction_version}
        value["features_epoch"] = features.finalized.epoch
    return encode_json(value)


def _by_broker(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(broker): number for broker, number in sorted(numbers.items())}


def decode_controller_brokers(data: bytes) -> dict[int, int]:
    value = decode_json(CONTROLLER_BROKERS, data)
    try:
        return {int(broker): int(epoch) for broker, epoch in value["epochs"].items()}
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER_BROKERS} does not list broker epochs: {error!r}") from None


def decode_recorded_features(data: bytes) -> FeatureRecord:
    """What `CONTROLLER_BROKERS` says of features; nothing where an earlier version of Holdfast wrote it."""
    value = decode_json(CONTROLLER_BROKERS, data)
    try:
        versions = {
            int(broker): int(version) for broker, version in value.get("transaction_versions", {}).items()
        }
        if "features" not in value:
            return FeatureRecord(versions)
        level, epoch = int(value["features"][TRANSACTION_VERSION]), int(value["features_epoch"])
        return FeatureRecord(versions, FinalizedFeatures(level, epoch))
    except WRONG_SHAPE as error:
        raise BadZnode(f"{CONTROLLER_BROKERS} does not list features: {error!r}") from None
