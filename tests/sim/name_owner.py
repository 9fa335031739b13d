"""A simulated owner of a name: an external resource guarded by the coordinator of the owners' group."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast_log.protocol.messages.ownership import NO_PARTITION
from tests.sim.client import Surroundings
from tests.sim.history import Incarnation
from tests.sim.owner_history import OwnerHistory, Told
from tests.sim.tenant import Tenant


class NameOwner(Tenant):
    """A client that owns a name, one of `resources` at a time. It writes nothing, so judges see its ownership
    only in its grants."""

    def __init__(self, around: Surroundings, name: str, resources: Sequence[str], told: OwnerHistory) -> None:
        super().__init__(around, name, (resources[0], NO_PARTITION), told)
        self._resources = resources
        self._coordinator: Address | None = None
        self._is_finding = False

    @property
    def place(self) -> Incarnation:
        return Incarnation(self.at)

    def work(self, grant: Told) -> None:
        self.has_worked = True

    def _claim(self) -> None:
        if len(self._resources) > 1 and self.is_idle:
            self.at = (self.rng.choice(self._resources), NO_PARTITION)
            self._seen = 0
        super()._claim()

    def decider(self) -> Address | None:
        if self._coordinator is None and not self._is_finding:
            self._is_finding = True
            request = FindCoordinatorRequest(key=self.group, key_type=0)
            self.send(self.anyone(), request, 3).addCallbacks(self._found, self._not_found)
        return self._coordinator

    def look_again(self) -> None:
        self._coordinator = None
        self.refresh()

    def _found(self, response: FindCoordinatorResponse) -> None:
        self._is_finding = False
        if response.error_code == ErrorCode.NONE:
            self._coordinator = Address(response.host, response.port)

    def _not_found(self, failure: Failure) -> None:
        self._is_finding = False
