"""What a process leaves open that dies in the middle of a transaction is found, until it has timed out."""

from __future__ import annotations

from tests.models.world import World
from tests.sim.mutation import mutated
from tests.sim.mutations import by_name
from tests.sim.open_transactions import open_transactions
from tests.sim.plan import TransactionsPlan
from tests.sim.test_cluster import Stage
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactor import Transactor

WORLD_SEED = 3
PLAN = TransactionsPlan("t", ids=1, timeout_ms=4000, pause_s=0.1, has_offsets=False)


class Death:
    """Three brokers, and a process that dies in its first transaction."""

    def __init__(self, world: World) -> None:
        self.stage = Stage(world, 3, {"min.insync.replicas": "2"})
        self.transactor = Transactor(
            self.stage.around, "tx0.0", "tx0", PLAN, TransactionHistory(self.stage.history)
        )
        self.transactor.dies_open = True
        self.transactor.start()
        self.stage.until(lambda: self.transactor.is_over)

    def hanging(self) -> list[str]:
        return list(open_transactions(self.stage.cluster))


def test_a_transaction_is_open_in_its_partition_and_at_its_coordinator_until_it_has_timed_out(
    world: World,
) -> None:
    death = Death(world)
    partition, coordinator = death.hanging()
    assert partition.startswith("t-0 from 0 to ")
    assert coordinator.endswith(" in Ongoing")
    world.run(3.0)
    assert len(death.hanging()) == 2
    world.run(3.0)
    assert death.hanging() == []


def test_one_that_never_times_out_stays_open(world: World) -> None:
    with mutated(by_name("never-timed-out")):
        death = Death(world)
        world.run(10.0)
        assert len(death.hanging()) == 2
