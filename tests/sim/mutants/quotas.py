"""Bugs of client quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.quotas.buckets import Buckets
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.precedence import Allowance, QuotaTable
from holdfast_log.broker.requests.calls import ChargedCall
from holdfast_log.broker.wiring.quotas import BROKER_CLIENT_ID
from holdfast_log.coordinator.cluster.change_notifications import ChangeNotifications
from holdfast_log.coordinator.zookeeper.interface import ZnodeWatch, ZooKeeperSession
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.messages.fetch import FetchResponse
from tests.sim.mutation import Mutation, Patch

_FOR_EVER_MS = 10**9


def _keep_the_first_limits() -> Sequence[Patch]:
    changed = QuotaLimits.configs_changed

    def mutant(self: QuotaLimits, kind: str, name: str, configs: Mapping[str, str]) -> None:
        known = vars(self).setdefault("_known", set())
        if (kind, name) not in known:
            known.add((kind, name))
            changed(self, kind, name, configs)

    return [(QuotaLimits, "configs_changed", mutant)]


def _mute_nothing() -> Sequence[Patch]:
    return [(ServerConnection, "mute", lambda self, delay_ms: None)]


def _tell_nothing() -> Sequence[Patch]:
    throttle_ms = ChargedCall._throttle_ms

    def mutant(self: ChargedCall) -> int:
        throttle_ms(self)
        return 0

    return [(ChargedCall, "_throttle_ms", mutant)]


def _count_all_clients_together() -> Sequence[Patch]:
    sensor = Buckets.sensor
    return [(Buckets, "sensor", lambda self, key, now_s: sensor(self, (None, None), now_s))]


def _limit_everybody() -> Sequence[Patch]:
    find = QuotaTable.find

    def mutant(self: QuotaTable, user: str, client_id: str) -> Allowance | None:
        found = find(self, user, client_id)
        limits = [limit for table in self._limits.values() for limit in table.values()]
        return Allowance(min(limits), (None, client_id)) if found is None and limits else found

    return [(QuotaTable, "find", mutant)]


def _mute_for_ever() -> Sequence[Patch]:
    mute = ServerConnection.mute
    return [(ServerConnection, "mute", lambda self, delay_ms: mute(self, _FOR_EVER_MS if delay_ms else 0))]


def _keep_mutes_when_limits_change() -> Sequence[Patch]:
    return [(ClientQuotas, "limits_changed", ClientQuotas._refresh)]


def _charge_replication() -> Sequence[Patch]:
    init, answer = ClientQuotas.__init__, ChargedCall.answer

    def exempting_nobody(self: ClientQuotas, limits: Any, settings: Any, clock: Any, is_exempt: Any) -> None:
        init(self, limits, settings, clock, lambda connection: False)

    def charging(self: ChargedCall, response: Response) -> None:
        if isinstance(response, FetchResponse) and BROKER_CLIENT_ID.fullmatch(self.client_id):
            size = sum(len(row.records or b"") for topic in response.responses for row in topic.partitions)
            key = QuotaKey.FETCH
            self.throttle(key, self._quotas.charge(key, self.connection, self.client_id, size))
        answer(self, response)

    return [(ClientQuotas, "__init__", exempting_nobody), (ChargedCall, "answer", charging)]


def _answer_whatever_the_fetch_quota() -> Sequence[Patch]:
    return [(ClientQuotas, "fetch_bytes_max", lambda self, connection, client_id: None)]


def _overlook_removed_notifications() -> Sequence[Patch]:
    names = ChangeNotifications._names

    async def mutant(
        self: ChangeNotifications[Any], session: ZooKeeperSession, watch: ZnodeWatch
    ) -> list[str]:
        found = await names(self, session, watch)
        return [name for name in found if await session.exists(f"{self._folder}/{name}")]

    return [(ChangeNotifications, "_names", mutant)]


MUTATIONS = (
    Mutation(
        "quota-not-reloaded",
        "a quota stays as a broker has read it first, whatever becomes of its znode",
        _keep_the_first_limits,
    ),
    Mutation(
        "throttle-told-not-kept",
        "a client over its quota is told how long it is throttled, and its requests are handled nevertheless",
        _mute_nothing,
    ),
    Mutation("throttle-kept-not-told", "a client over its quota is delayed without a word", _tell_nothing),
    Mutation(
        "clients-counted-together",
        "what one client uses counts towards the quotas of the others",
        _count_all_clients_together,
    ),
    Mutation(
        "charged-to-everybody",
        "the quota of one client applies to those that have none",
        _limit_everybody,
    ),
    Mutation("mute-for-ever", "a connection that was muted is never read again", _mute_for_ever),
    Mutation(
        "mute-outlives-quota",
        "a connection stays muted although the quota that required it was removed or raised",
        _keep_mutes_when_limits_change,
    ),
    Mutation(
        "replication-throttled",
        "a quota of all client ids applies to the fetches of followers",
        _charge_replication,
    ),
    Mutation(
        "fetch-quota-ignored",
        "fetches are answered whatever the quota of their client is",
        _answer_whatever_the_fetch_quota,
    ),
)

RARE = (
    Mutation(
        "removed-notification-overlooked",
        "a broker never learns of a change whose notification another one, whose clock is ahead, has removed",
        _overlook_removed_notifications,
    ),
)
"""Bugs that a campaign rarely catches: two brokers have to read one notification at the same time, one of
them with a wrong clock."""
