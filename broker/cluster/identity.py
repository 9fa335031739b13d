"""This broker's id, cluster and inter-broker listener."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """`inter_broker_listener` is the name of the listener that brokers use among themselves."""

    broker_id: int
    cluster_id: str
    inter_broker_listener: str
