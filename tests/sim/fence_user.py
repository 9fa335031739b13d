"""Simulated processes to which an owner has given the fence of its grant.

Such a process sends requests for the owner, on connections of its own and sometimes seconds late, as a pool
does that works through a queue. Nothing severs its connections when the owner loses its grant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request
from tests.sim.client import Client

_LATE_SHARE = 0.5
_LATE_S_MAX = 2.0


class FenceUser(Client):
    """Sends what one owner gives it. Like a bare sender it asks for no metadata, and is never started."""

    def carry(
        self,
        owner: Client,
        address: Address,
        request: Request[Any],
        answered: Callable[[float, Any], None],
        failed: Callable[[], None],
    ) -> None:
        """Send a request, now or later. Calls `answered` with the time at which it was sent, in simulated
        seconds, and the response; or `failed`. Both are called in the owner's process."""
        late_s = self.rng.uniform(0, _LATE_S_MAX) if self.rng.random() < _LATE_SHARE else 0.0
        self.later(late_s, self._carry, owner, address, request, answered, failed)

    def _carry(
        self,
        owner: Client,
        address: Address,
        request: Request[Any],
        answered: Callable[[float, Any], None],
        failed: Callable[[], None],
    ) -> None:
        sent_s = self.world.seconds()
        self.send(address, request).addCallbacks(
            lambda response: owner.later(0.0, answered, sent_s, response),
            lambda failure: owner.later(0.0, failed),
        )
