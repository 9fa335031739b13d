"""Builds the client quotas of this broker."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.network.admission import BrokerAdmission
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

BROKER_CLIENT_ID = re.compile(
    r"(broker|controller|group-coordinator|transaction-coordinator)-\d+|replica-fetcher-\d+-\d+"
)
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
    around: Surroundings, admission: BrokerAdmission, settings: SettingsParts, metadata: MetadataCache
) -> QuotaParts:
    wanted = read_group(QuotaSettings, settings.static)
    limits = QuotaLimits(wanted)

    def is_exempt(connection: ServerConnection) -> bool:
        """Whether another broker has opened the connection. On a listener that brokers share with clients,
        and without a secret, their client ids tell them from clients, which can use such an id too."""
        if not connection.is_broker:
            return False
        return not admission.is_open or BROKER_CLIENT_ID.fullmatch(connection.client_id) is not None

    clients = ClientQuotas(limits, wanted, around.clock, is_exempt)
    return QuotaParts(
        limits=limits,
        clients=clients,
        mutations=MutationQuotas(
            clients, metadata, settings.static["num.partitions"], settings.static["request.partitions.max"]
        ),
        connections=ConnectionRates(limits, settings.in_force, admission.own, around.clock),
        store=QuotaStore(settings.dynamic_configs, wanted.entities_max),
    )
