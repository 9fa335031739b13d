"""Charges partitions that clients create and delete to their quotas (KIP-599)."""

from __future__ import annotations

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode

DEFAULT = -1
"""Number of partitions in a request that leaves it to the broker."""


class MutationQuotas:
    """Charges each topic of a request before it is carried out.

    A strict charge of a client that is over its quota is refused with THROTTLING_QUOTA_EXCEEDED, which
    clients know from certain versions of a request on. Any other charge is accepted, and throttles the
    client.
    """

    def __init__(
        self, quotas: ClientQuotas, metadata: MetadataCache, default_partitions: int, partitions_max: int
    ) -> None:
        self._quotas = quotas
        self._metadata = metadata
        self._default_partitions = default_partitions
        self._partitions_max = partitions_max

    def create(
        self, context: RequestContext, topic: str, partitions: int, *, is_strict: bool
    ) -> BrokerError | None:
        """Charge the creation of a topic. A topic that exists costs nothing. Returns the refusal, if any."""
        if not self._quotas.limits_mutations or topic in self._metadata.topics:
            return None
        if partitions == DEFAULT:
            partitions = self._default_partitions
        return self._charge_new(context, partitions, is_strict=is_strict)

    def grow(
        self, context: RequestContext, topic: str, partitions: int, *, is_strict: bool
    ) -> BrokerError | None:
        """Charge partitions that raise a topic's number to `partitions`. Returns the refusal, if any."""
        if not self._quotas.limits_mutations:
            return None
        return self._charge_new(context, partitions - self._partitions_of(topic), is_strict=is_strict)

    def delete(self, context: RequestContext, topic: str, *, is_strict: bool) -> BrokerError | None:
        """Charge the deletion of a topic. Returns the refusal, if any."""
        if not self._quotas.limits_mutations:
            return None
        return self._charge(context, self._partitions_of(topic), is_strict=is_strict)

    def _partitions_of(self, topic: str) -> int:
        known = self._metadata.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def _charge_new(self, context: RequestContext, partitions: int, *, is_strict: bool) -> BrokerError | None:
        """Charge new partitions. Those above request.partitions.max are refused, and cost nothing."""
        if partitions > self._partitions_max:
            return None
        return self._charge(context, partitions, is_strict=is_strict)

    def _charge(self, context: RequestContext, partitions: int, *, is_strict: bool) -> BrokerError | None:
        connection, quotas, key = context.connection, self._quotas, QuotaKey.MUTATION
        if connection is None or partitions <= 0:
            return None
        if is_strict:
            due_ms = quotas.due_ms(key, connection, context.client_id)
            if due_ms:
                self._throttle(context, due_ms)
                message = f"the client is over its {key}: try again in {due_ms} ms"
                return BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        throttle_ms = quotas.charge(key, connection, context.client_id, partitions)
        if not is_strict:
            self._throttle(context, throttle_ms)
        return None

    def _throttle(self, context: RequestContext, throttle_ms: int) -> None:
        if self._quotas.is_enforced:
            context.throttle(QuotaKey.MUTATION, throttle_ms)
        elif throttle_ms and context.connection is not None:
            # Nothing else is charged, so the response cannot have the time (KIP-219): the connection waits.
            self._quotas.throttle(QuotaKey.MUTATION, context.connection, context.client_id, throttle_ms)
