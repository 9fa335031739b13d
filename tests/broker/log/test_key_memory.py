"""The keys of all logs of a broker share its memory, whatever topics say that they may use."""

from __future__ import annotations

import gc

from holdfast_log.broker.log.key_memory import BYTES_PER_KEY, KEYS_MIN, KeyMemory
from holdfast_log.broker.log.log import Log
from tests.broker.log.test_key_versions import append_keys, indexed, version
from tests.models.logs import new_log, sim_disk

LOGS = 20
KEYS_EACH = 150


def log_of(memory: KeyMemory) -> Log:
    """A log of a topic that claims two gigabytes for its keys."""
    log = new_log(sim_disk(), key_versions=True, key_versions_memory_bytes=2**31 - 1)
    return indexed(log, memory=memory)


def test_many_topics_that_claim_much_memory_for_keys_share_what_the_broker_has() -> None:
    total_keys = 2 * LOGS * KEYS_EACH
    logs = [log_of(memory) for memory in [KeyMemory(total_keys * BYTES_PER_KEY)] for _ in range(LOGS)]
    for round_ in range(40):
        for log in logs:
            append_keys(log, [b"key %d" % (round_ * 10 + number) for number in range(10)])
    in_memory = [log.keys.keys_in_memory for log in logs if log.keys is not None]
    assert len(in_memory) == LOGS
    assert max(in_memory) <= KEYS_EACH + 10
    # What is not in memory is in files: no version is lost.
    assert all(version(log, b"key %d" % number) == number for log in logs for number in (0, 1, 200, 399))


def test_a_log_that_is_gone_leaves_its_share_to_the_others() -> None:
    memory = KeyMemory(2 * 1000 * BYTES_PER_KEY)
    logs = [log_of(memory) for _ in range(4)]
    assert memory.keys_each == 250
    del logs[1:]
    gc.collect()
    assert memory.keys_each == 1000
    assert logs[0].keys is not None and logs[0].keys.keys_max == 1000


def test_each_log_may_have_some_keys_in_memory_however_many_there_are() -> None:
    memory = KeyMemory(1)
    assert log_of(memory).keys is not None
    assert memory.keys_each == KEYS_MIN


def test_a_topic_that_wants_less_than_its_share_gets_what_it_wants() -> None:
    log = new_log(sim_disk(), key_versions=True, key_versions_memory_bytes=5 * BYTES_PER_KEY)
    indexed(log, memory=KeyMemory(1 << 30))
    assert log.keys is not None and log.keys.keys_max == 5
