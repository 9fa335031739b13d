"""/brokers/ids/N: a live broker. The znode is ephemeral; its czxid is the broker epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_log.coordinator.znodes.json_values import WRONG_SHAPE, BadZnode, decode_json, encode_json, int32
from holdfast_log.protocol.inter_broker import OLDEST

BROKER_IDS = "/brokers/ids"

NO_EPOCH = -1
"""A broker epoch that is not known or not set."""

ELIGIBLE_LEADERS = "holdfast.eligible.leaders"
"""The feature of a broker that, as leader, raises no high watermark while the partition has eligible leader
replicas (KIP-966). Under other leaders the controller records none."""

REPLICA_LOG_INFO = "holdfast.replica.log.info"
"""The feature of a broker that answers GetReplicaLogInfo (KIP-966)."""

YIELDS_LEADERSHIP = "holdfast.yields.leadership"
"""The feature of a broker that answers YieldLeadership, and confirms no ownership from the moment at which it
asks for a controlled shutdown. From other brokers the controller moves leadership without asking."""

PROTOCOL = "holdfast.inter.broker.protocol"
"""The feature whose versions are those of the protocol between brokers that a broker speaks. One that does
not announce it speaks version 1."""

TRANSACTION_VERSION = "transaction.version"
"""Kafka's feature. From 2 on producers get a new epoch with each transaction, and do not name its partitions
beforehand (KIP-890). A broker registers the versions up to the one that its file sets."""


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


@dataclass(frozen=True, slots=True)
class RegisteredEndpoint:
    """The advertised address of one of a broker's listeners."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker's registration. `features` maps a feature's name to its lowest and highest version.

    `start_epoch` is the broker epoch of this process's first registration; `NO_EPOCH` if this is it.
    `previous_start_epoch` is the start epoch of the process before it, if all that process wrote is certainly
    in this process's log directories; `NO_EPOCH` if records may be lost. `earlier_start_epochs` are those of
    the processes before that one, as far back as their writes are all there too, latest first.

    `machine` names the machine of a broker that is one of several processes (`broker.processes`). `protocol`
    is the version of the protocol between brokers that this one uses, of those that it speaks (`PROTOCOL`).
    """

    broker_id: int
    endpoints: tuple[RegisteredEndpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    start_epoch: int = NO_EPOCH
    previous_start_epoch: int = NO_EPOCH
    earlier_start_epochs: tuple[int, ...] = ()
    machine: str | None = None
    protocol: int = OLDEST

    @property
    def newest_protocol(self) -> int:
        """The newest version of the protocol between brokers that this broker speaks."""
        return self.features.get(PROTOCOL, (OLDEST, OLDEST))[1]


def encode_broker(info: BrokerInfo, timestamp_ms: int) -> bytes:
    """Encode version 5. `host` and `port`, for readers that predate endpoints, are those of the first
    PLAINTEXT listener.

    `machine`, `protocol`, `start_epoch`, `previous_start_epoch` and `earlier_start_epochs` are not Kafka's
    fields; Kafka's decoders skip unknown fields.
    """
    plaintext = next(
        (endpoint for endpoint in info.endpoints if endpoint.security_protocol == "PLAINTEXT"), None
    )
    value: dict[str, Any] = {
        "version": 5,
        "features": {
            name: {"min_version": low, "max_version": high}
            for name, (low, high) in sorted(info.features.items())
        },
        "listener_security_protocol_map": {
            endpoint.listener: endpoint.security_protocol for endpoint in info.endpoints
        },
        "endpoints": [
            f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}"
            for endpoint in info.endpoints
        ],
        "jmx_port": -1,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "timestamp": str(timestamp_ms),
    }
    if info.rack is not None:
        value["rack"] = info.rack
    if info.machine is not None:
        value["machine"] = info.machine
    if info.protocol != OLDEST:
        value["protocol"] = info.protocol
    if info.start_epoch != NO_EPOCH:
        value["start_epoch"] = info.start_epoch
    if info.previous_start_epoch != NO_EPOCH:
        value["previous_start_epoch"] = info.previous_start_epoch
    if info.earlier_start_epochs:
        value["earlier_start_epochs"] = list(info.earlier_start_epochs)
    return encode_json(value)


def decode_broker_id(name: str) -> int:
    """The broker id in the name of a znode below `BROKER_IDS`. Raises `BadZnode`."""
    try:
        number = int32(name)
    except ValueError:
        number = -1
    if number < 0 or str(number) != name:
        raise BadZnode(f"{BROKER_IDS}/{name} is not named after a broker id")
    return number


def decode_broker(broker_id: int, data: bytes) -> BrokerInfo:
    """Decode any version from 1 on. Raises `BadZnode`."""
    path = broker_path(broker_id)
    value = decode_json(path, data)
    try:
        return BrokerInfo(
            broker_id=broker_id,
            endpoints=_decode_endpoints(value),
            rack=None if value.get("rack") is None else _text(value["rack"]),
            machine=None if value.get("machine") is None else _text(value["machine"]),
            protocol=int(value.get("protocol", OLDEST)),
            features={
                name: (int(versions["min_version"]), int(versions["max_version"]))
                for name, versions in (value.get("features") or {}).items()
            },
            start_epoch=int(value.get("start_epoch", NO_EPOCH)),
            previous_start_epoch=int(value.get("previous_start_epoch", NO_EPOCH)),
            earlier_start_epochs=tuple(int(epoch) for epoch in value.get("earlier_start_epochs") or ()),
        )
    except WRONG_SHAPE as error:
        raise BadZnode(f"{path} does not describe a broker: {error!r}") from None


def _decode_endpoints(value: Mapping[str, Any]) -> tuple[RegisteredEndpoint, ...]:
    if int(value["version"]) == 1:
        return (RegisteredEndpoint("PLAINTEXT", _text(value["host"]), int32(value["port"]), "PLAINTEXT"),)
    protocols = value.get("listener_security_protocol_map") or {}
    endpoints = []
    for text in value["endpoints"]:
        listener, address = text.split("://", 1)
        host, port = address.rsplit(":", 1)
        protocol = _text(protocols.get(listener, listener))
        endpoints.append(RegisteredEndpoint(listener, host.strip("[]"), int32(port), protocol))
    return tuple(endpoints)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
