"""A broker that finds its disks empty, because they are not mounted or were replaced."""

from __future__ import annotations

import pytest

from tests.models.world import World
from tests.sim.cluster import LOG_DIRECTORIES
from tests.sim.test_last_replica import Trio

WORLD_SEED = 1


@pytest.mark.parametrize("directories", [LOG_DIRECTORIES, LOG_DIRECTORIES[:1]])
def test_the_last_replica_in_sync_leads_only_once_its_disks_are_mounted(
    world: World, directories: list[str]
) -> None:
    """With an empty log it must not lead, because the other replicas would truncate their logs to it."""
    trio = Trio(world, min_in_sync=1)
    trio.pause_followers()
    before = trio.stage.acknowledged()
    trio.stage.producer.is_making = True
    trio.stage.until(lambda: trio.stage.acknowledged() > before)
    trio.stage.producer.is_making = False
    trio.stage.until(lambda: trio.stage.producer.is_idle)
    trio.leader.unmount(directories)
    for other in trio.others:
        other.resume()
    trio.leader.start()
    world.run(12)
    assert trio.isr() == (trio.leader.broker_id,)
    trio.leader.kill()
    trio.leader.mount()
    trio.keeps_everything()


def test_replicas_on_new_disks_are_filled_before_they_count_as_in_sync(world: World) -> None:
    trio = Trio(world)
    trio.leader.wipe()
    trio.leader.start()
    world.run(2)
    trio.keeps_everything()


def test_no_replica_is_truncated_because_another_ones_disk_is_not_mounted(world: World) -> None:
    trio = Trio(world)
    trio.leader.unmount(LOG_DIRECTORIES)
    trio.leader.start()
    world.run(12)
    assert trio.stage.leader() not in (-1, trio.leader.broker_id)
    trio.leader.kill()
    trio.leader.mount()
    trio.keeps_everything()
