"""Simulated tenants: each claims a resource for itself and renews its grant. Sometimes it releases the
resource, closes its connection, or is paused past its session timeout.

Subclasses define what a tenant does while it believes that it owns the resource: write, read, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    HeldResource,
    LossReason,
    ReleaseRequest,
    ReleaseResponse,
    RenewResponse,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
    ResumeResponse,
)
from tests.sim.claimant import SESSION_TIMEOUT_MS, SURE_S, TIMEOUT_MS, Claimant
from tests.sim.client import Surroundings
from tests.sim.history import TopicPartition
from tests.sim.owner_history import OwnerHistory, Told

_TICK_S = 0.35
_RENEW_EVERY = 3
_CLAIM_SHARE = 0.25
_LEAVE_SHARE = 0.02
_BREAK_SHARE = 0.02
OFTEN_BREAK_SHARE = 0.1
_IMPERSONATE_SHARE = 0.02
SILENT = frozenset({LossReason.DISCONNECTED, LossReason.SESSION_TIMED_OUT})


class Tenant(Claimant):
    """A client that repeatedly claims a resource, keeps it for a while, and releases it."""

    def __init__(self, around: Surroundings, name: str, at: TopicPartition, told: OwnerHistory) -> None:
        super().__init__(around, name, at, told)
        self._ticks = 0
        self.leave_share = _LEAVE_SHARE
        """The share of steps in which the tenant begins to release the resource."""
        self.break_share = _BREAK_SHARE
        """The share of steps in which it closes its connection."""

    def begin(self) -> None:
        super().begin()
        self._tick()

    # Overridden in subclasses

    @property
    def is_ready(self) -> bool:
        """Whether the tenant can claim. If not, the call starts what is missing."""
        return True

    def work(self, grant: Told) -> None:
        """Use the resource under `grant`."""

    def has_lost(self, grant: Told) -> None:
        """Called when the tenant learns that `grant` has ended."""

    # One step after another

    @property
    def is_away(self) -> bool:
        """Whether the tenant has no grant, no place in a queue, and no pending request."""
        return self.is_idle and self.grant is None and self.in_queue is None

    def _tick(self) -> None:
        self.later(_TICK_S * self.rng.uniform(0.5, 1.5), self._tick)
        self._ticks += 1
        grant = self.grant
        if not self.is_ready:
            return
        self._perhaps_impersonate()
        if grant is None:
            if self.in_queue is not None:
                self._ask_for_place(self.in_queue)
            elif self.is_making and self.rng.random() < _CLAIM_SHARE:
                self._claim()
        elif self._is_resuming:
            self._resume(grant)
        else:
            if self._ticks % _RENEW_EVERY == 0:
                self._renew(grant)
            self.work(grant)
            self._perhaps_go(grant)

    def _perhaps_go(self, grant: Told) -> None:
        """Now and then release the resource, or close the connection."""
        chance = self.rng.random()
        address = self.decider()
        if self.is_leaving or chance < self.leave_share:
            self.is_leaving = True
            if self.is_idle:
                self._release(grant)
        elif chance < self.leave_share + self.break_share and address is not None:
            self.world.trace(self.name, "closes its connection")
            self.drop(address)
            if self.rng.random() < 0.5:
                self.lose_touch(grant)

    # Posing as another owner

    def _perhaps_impersonate(self) -> None:
        """Now and then resume or release the grant of another tenant by its owner id, which every refusal
        publishes. A broker must refuse that."""
        rng, place, address = self._stranger_rng, self.place, self.decider()
        if rng.random() >= _IMPERSONATE_SHARE or place is None or address is None:
            return
        others = [
            grant
            for grant in self.told.grants
            if grant.place == place and grant.group == self.group and not grant.is_shared
            if grant.owner != self.claimant_id
        ]
        if not others:
            return
        victim = others[-1]
        secret = self.secret if rng.random() < 0.7 else b""
        if rng.random() < 0.5:
            self._impersonate(address, victim, self._stolen_resumption(victim, secret))
        else:
            held = HeldResource(name=self.at[0], partition=self.at[1], incarnation=victim.incarnation)
            self._impersonate(
                address,
                victim,
                ReleaseRequest(group=self.group, owner_id=victim.owner_id, resources=[held], secret=secret),
            )

    def _stolen_resumption(self, victim: Told, secret: bytes) -> ResumeRequest:
        resumed = ResumedResource(
            name=self.at[0],
            partition=self.at[1],
            generation=victim.generation,
            incarnation=victim.incarnation,
        )
        return ResumeRequest(
            group=self.group,
            owner_id=victim.owner_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
            resources=[resumed],
            secret=secret,
        )

    def _impersonate(self, address: Address, victim: Told, request: ResumeRequest | ReleaseRequest) -> None:
        def answered(response: ResumeResponse | ReleaseResponse) -> None:
            self.history.operations += 1
            for standing in response.resources:
                if standing.error_code == ErrorCode.NONE:
                    did = "resumed" if isinstance(request, ResumeRequest) else "released"
                    self.history.violation(f"{self.claimant_id} {did} {victim} by naming its owner id")

        self.send(address, request).addCallbacks(answered, lambda failure: None)

    # Keeping the resource

    def _renew(self, grant: Told) -> None:
        address = self.decider()
        if address is None:
            return
        asked_s = self.world.seconds()
        self._ask_how_it_stands(address, grant.incarnation).addCallbacks(
            lambda response: self._renewed(address, grant, asked_s, response),
            lambda failure: self.lose_touch(grant),
        )

    def _renewed(self, address: Address, grant: Told, asked_s: float, response: RenewResponse) -> None:
        self.history.operations += 1
        for standing in response.resources:
            if grant is not self.grant:
                continue
            if standing.error_code == ErrorCode.NONE:
                home = self._home(address, standing.leader_epoch)
                if self._granted_on == home:
                    self.told.stands(grant, asked_s)
                    self._sure_until_s = asked_s + SURE_S
                continue
            if self._has_ended_wrongly(address, standing):
                self.told.dropped(grant, LossReason(standing.reason))
            self._stumble(grant, standing)
        if response.error_code != ErrorCode.NONE:
            self.lose_touch(grant)

    def _has_ended_wrongly(self, address: Address, standing: ResourceStanding) -> bool:
        """Whether a broker reported the tenant silent or disconnected, or its grant unknown, although its
        connection is open and either its last request is recent or the leader epoch is unchanged.

        A broker no longer knows a grant that it has forgotten with its name, or that many others have
        followed. It closes the owner's connection before either can happen."""
        reason = LossReason(standing.reason)
        is_unknown = standing.error_code == ErrorCode.OWNERSHIP_FENCED and reason is LossReason.NONE
        if reason not in SILENT and not is_unknown:
            return False
        before, now = self._granted_on, self._home(address)
        if before is None or (before.address, before.connection) != (now.address, now.connection):
            return False
        is_same = before == now and reason is LossReason.DISCONNECTED
        return is_same or self.world.seconds() < self._sure_until_s

    def _stumble(self, grant: Told, standing: ResourceStanding) -> None:
        is_silence = LossReason(standing.reason) in SILENT
        if standing.error_code != ErrorCode.OWNERSHIP_FENCED or (is_silence and self.rng.random() < 0.5):
            self.lose_touch(grant)
        else:
            self.fenced(grant, standing.generation, LossReason(standing.reason))

    def lose_touch(self, grant: Told) -> None:
        """Start resuming the grant: the connection or leader has changed, but the grant may be in force."""
        if grant is self.grant:
            self._is_resuming = True
            self.look_again()

    def _resume(self, grant: Told) -> None:
        address = self.decider()
        if address is None or self._is_asking:
            return
        self._is_asking = True
        asked_s = self.world.seconds()
        resumed = ResumedResource(
            name=self.at[0],
            partition=self.at[1],
            generation=grant.generation,
            incarnation=grant.incarnation,
        )
        request = ResumeRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
            resources=[resumed],
            secret=self.secret,
        )

        def answered(response: ResumeResponse) -> None:
            self._is_asking = False
            self.history.operations += 1
            self._resumed(address, grant, asked_s, response.resources)

        self.send(address, request).addCallbacks(answered, self._unanswered)

    def _resumed(
        self, address: Address, grant: Told, asked_s: float, standings: Sequence[ResourceStanding]
    ) -> None:
        for standing in standings:
            if standing.error_code == ErrorCode.NONE:
                self.goes_on(address, grant, asked_s, standing.leader_epoch)
            elif standing.error_code == ErrorCode.OWNERSHIP_FENCED:
                self.fenced(grant, standing.generation, LossReason(standing.reason))
            else:
                self.look_again()
        if not standings:
            self.look_again()

    def goes_on(self, address: Address, grant: Told, asked_s: float, leader_epoch: int) -> None:
        """Called when `grant` was renewed on this connection."""
        self._is_resuming = False
        self._granted_on = self._home(address, leader_epoch)
        self.told.resumed(grant, asked_s)
        self._sure_until_s = asked_s + SURE_S
        if self.is_ready:
            self.work(grant)

    # Losing the resource

    def fenced(self, grant: Told, generation: int, reason: LossReason) -> None:
        """Called when a broker answered that `grant` has ended."""
        if grant is not self.grant:
            return
        self.world.trace(self.name, f"has lost {grant}: {reason.name}")
        self.told.fenced(grant, generation, reason)
        self._seen = generation
        self.forget(grant)

    def forget(self, grant: Told) -> None:
        """Called when the tenant learns that it has lost or released the resource."""
        self.has_lost(grant)
        self.grant = None
        self._is_resuming = False
        self.is_leaving = not self.is_making

    def _release(self, grant: Told) -> None:
        address = self.decider()
        if address is None:
            return
        self._is_asking = True
        held = HeldResource(name=self.at[0], partition=self.at[1], incarnation=grant.incarnation)
        request = ReleaseRequest(
            group=self.group, owner_id=self.owner_id, resources=[held], secret=self.secret
        )

        def answered(response: ReleaseResponse) -> None:
            self._is_asking = False
            self.history.operations += 1
            for standing in response.resources:
                if standing.error_code == ErrorCode.NONE:
                    self.world.trace(self.name, f"has released {grant}")
                    self.forget(grant)
                elif standing.error_code == ErrorCode.OWNERSHIP_FENCED:
                    self.fenced(grant, standing.generation, LossReason(standing.reason))
                else:
                    self.look_again()
            if not response.resources:
                self.look_again()

        self.send(address, request).addCallbacks(answered, self._unanswered)
