"""Bugs of timers that follow the time of day, which an administrator may set."""

from __future__ import annotations

from collections.abc import Sequence

from tests.models.world import ProcessCall
from tests.sim.cluster import Machine
from tests.sim.mutation import Mutation, Patch


def _set_timers_with_the_clock() -> Sequence[Patch]:
    set_clock = Machine.set_clock

    def mutant(self: Machine, ahead_s: float) -> None:
        step_s = ahead_s - self._ahead_s
        set_clock(self, ahead_s)
        clock = self._world.clock
        for call in clock.getDelayedCalls():
            is_own = isinstance(call, ProcessCall) and call.process is self.process
            # Neither models of the machine's devices nor calls of this turn of the reactor.
            module = str(getattr(call._function, "__module__", ""))
            is_program = module.startswith(("holdfast_log.broker.", "holdfast_log.coordinator."))
            if is_own and is_program and call.due_s > clock.rightNow:
                call.delay(-step_s)

    return [(Machine, "set_clock", mutant)]


MUTATIONS = (
    Mutation(
        "timers-by-time-of-day",
        "a broker's timers are late by as much as its clock is set back",
        _set_timers_with_the_clock,
    ),
)
