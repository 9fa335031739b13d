"""Builds the client quotas of this broker."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.connection_rates import ConnectionRates
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.quotas.store import QuotaStore
from holdfast_log.broker.requests.mutations import MutationQuotas
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.wiring.settings import SettingsParts
from holdfast_log.broker.wiring.surroundings import Surroundings

BROKER_CLIENT_ID = re.compile(r"(broker|controller|group-coordinator)-\d+|replica-fetcher-\d+-\d+")
"""Client ids of the channels between brokers (`broker.wiring.cluster`)."""


@dataclass(frozen=True, slots=True)
class QuotaParts:
    """The limits of clients, and what describes and alters them."""

    limits: QuotaLimits
    clients: ClientQuotas
    mutations: MutationQuotas
    connections: ConnectionRates
    store: QuotaStore


def build_quotas(
    around: Surroundings, identity: BrokerIdentity, settings: SettingsParts, metadata: MetadataCache
) -> QuotaParts:
    wanted = read_group(QuotaSettings, settings.static)
    limits = QuotaLimits(wanted)

    def is_broker(connection: ServerConnection) -> bool:
        """Whether another broker has opened the connection. Without authentication a client can claim it: a
        listener of their own for brokers (`inter.broker.listener.name`) keeps clients out."""
        if connection.listener != identity.inter_broker_listener:
            return False
        return BROKER_CLIENT_ID.fullmatch(connection.client_id) is not None

    clients = ClientQuotas(limits, wanted, around.clock, is_broker)
    return QuotaParts(
        limits=limits,
        clients=clients,
        mutations=MutationQuotas(
            clients, metadata, settings.static["num.partitions"], settings.static["request.partitions.max"]
        ),
        connections=ConnectionRates(limits, settings.in_force, identity.inter_broker_listener, around.clock),
        store=QuotaStore(settings.dynamic_configs, wanted.entities_max),
    )
