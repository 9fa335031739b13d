"""Client quotas for tests of handlers."""

from __future__ import annotations

from twisted.internet.task import Clock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.requests.mutations import MutationQuotas


def client_quotas(limits: QuotaLimits, clock: Clock) -> ClientQuotas:
    """Quotas with these limits, from which the fetchers of followers are exempt."""
    quotas = ClientQuotas(
        limits, QuotaSettings(), clock, lambda connection: connection.client_id.startswith("replica-fetcher-")
    )
    limits.add_listener(quotas.limits_changed)
    return quotas


def no_mutation_quotas() -> MutationQuotas:
    """Charges nobody for topics."""
    return MutationQuotas(client_quotas(QuotaLimits(QuotaSettings()), Clock()), MetadataCache(), 1, 5_000)
