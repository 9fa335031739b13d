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
    assert max(in_memory) <= 2 * KEYS_EACH + 10
    assert sum(in_memory) <= total_keys // 2 + 10 * LOGS
    # What is not in memory is in files: no version is lost.
    assert all(version(log, b"key %d" % number) == number for log in logs for number in (0, 1, 200, 399))


def test_a_log_that_is_gone_leaves_its_share_to_the_others() -> None:
    memory = KeyMemory(2 * 1000 * BYTES_PER_KEY)
    logs = [log_of(memory) for _ in range(4)]
    for number in range(1, 4):
        append_keys(logs[number], [b"%d" % key for key in range(200)])
    assert logs[0].keys is not None
    assert (logs[0].keys.keys_max, memory.keys_max(0)) == (200, 200)
    del logs[1:]
    gc.collect()
    assert logs[0].keys.keys_max == 500


def test_an_index_of_many_keys_is_not_held_down_by_thousands_that_have_none() -> None:
    """Any client may create topics with key.versions."""
    memory = KeyMemory(2 * 1000 * BYTES_PER_KEY)
    honest = log_of(memory)
    strangers = [log_of(memory) for _ in range(200)]
    append_keys(honest, [b"key %d" % number for number in range(450)])
    assert honest.keys is not None and len(strangers) == 200
    assert honest.keys.keys_in_memory == 450, "nothing had to be written"


def test_keys_that_were_written_or_forgotten_make_room_for_others() -> None:
    memory = KeyMemory(2 * 1000 * BYTES_PER_KEY)
    log, other = log_of(memory), log_of(memory)
    for start in range(0, 3000, 100):
        append_keys(log, [b"key %d" % number for number in range(start, start + 100)])
    assert log.keys is not None and other.keys is not None
    log.keys.reset(log.log_start_offset)
    assert (log.keys.keys_in_memory, other.keys.keys_max) == (0, 500)


def test_each_log_may_have_some_keys_in_memory_however_many_there_are() -> None:
    memory = KeyMemory(1)
    log = log_of(memory)
    assert log.keys is not None and log.keys.keys_max == KEYS_MIN


def test_a_topic_that_wants_less_than_its_share_gets_what_it_wants() -> None:
    log = new_log(sim_disk(), key_versions=True, key_versions_memory_bytes=5 * BYTES_PER_KEY)
    indexed(log, memory=KeyMemory(1 << 30))
    assert log.keys is not None and log.keys.keys_max == 5
