"""Owners that go on asking the broker which granted them a resource, though another may have replaced it."""

from __future__ import annotations

import math

from holdfast_log.checker.clients.claimant import RivalClaimant, Tenure

_OVERTAKEN_S = 1.0
"""How long an owner goes on after it has heard that another client was confirmed by a later grant."""
_UNCONFIRMED_S_MAX = 20.0
"""How long it goes on without a confirmation if it hears of no other owner."""


class StubbornOwner(RivalClaimant):
    """An owner that gives nothing back, and asks no other broker while its own may still confirm it.

    So it is there when its broker was replaced without knowing it, and another client was granted the
    resource by the next broker: the first one must not confirm anything then. As long as it owns nothing it
    takes nothing by force, for which a cut-off broker would let it wait, and looks for the next broker all
    the time.
    """

    leave_share = 1.0
    names_generations = False
    _overtaken_s = math.inf

    def _begun(self, generation: int, incarnation: int) -> Tenure:
        self._overtaken_s = math.inf
        return Tenure(generation, incarnation, release_at_s=math.inf)

    def _leave(self) -> None:
        tenure = self._tenure
        if tenure is not None and self._goes_on(tenure):
            tenure.is_detached = True
            return
        self._tenure = None
        super()._leave()

    def _goes_on(self, tenure: Tenure) -> bool:
        now_s = self._recorder.now_s()
        notices = self._settings.board.notices(self._label)
        if any(notice.incarnation > tenure.incarnation for notice in notices):
            self._overtaken_s = min(self._overtaken_s, now_s)
        return now_s < min(self._overtaken_s + _OVERTAKEN_S, tenure.confirmed_s + _UNCONFIRMED_S_MAX)
