"""The programs in docs/examples run unchanged against a real broker; they are killed, paused and raced."""

from __future__ import annotations

import os
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic, TokenCheck
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import NO_VERSION, ConsumerRecord, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import TopicExistsError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import clients

HOME = Path(__file__).parents[2]
EXAMPLES = HOME / "docs/examples"
TIMEOUT_S = 500
WAIT_MS = 60_000


def start(example: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / example), *map(str, arguments)],
        # Unbuffered, Python writes a line and its end in two pieces, between which another process may write.
        env={**os.environ, "PYTHONPATH": str(HOME), "PYTHONUNBUFFERED": ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(example: str, *arguments: object, commands: str = "") -> str:
    """Run an example with `commands` as its input. Returns its output."""
    process = start(example, *arguments)
    printed, errors = process.communicate(commands, timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    return printed


def records_of(broker: BackgroundBroker, topic: str, count: int, partition: int = 0) -> list[ConsumerRecord]:
    """At least the first `count` records of a partition, and any that arrive within 200 ms afterwards."""
    found: list[ConsumerRecord] = []
    with Consumer({"bootstrap.servers": broker.address, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(topic, partition)
        while len(found) < count:
            found += consumer.poll(WAIT_MS)
        return found + consumer.poll(200)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a running example prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def write_to(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def test_a_table_refuses_the_owner_that_was_paused(broker: BackgroundBroker, tmp_path: Path) -> None:
    path = tmp_path / "accounts.sqlite"
    first = start("guarded_table.py", broker.address, "accounts", path)
    token = int(line_of(first).split()[3].rstrip(","))
    write_to(first, "alice 70")
    assert line_of(first) == "wrote alice"
    os.kill(first.pid, signal.SIGSTOP)
    second = start("guarded_table.py", broker.address, "accounts", path)
    taken_over = line_of(second)
    assert taken_over.endswith("after 1 entries")
    newer = int(taken_over.split()[3].rstrip(","))
    assert newer > token
    write_to(second, "alice 50")
    assert line_of(second) == "wrote alice"
    write_to(first, "alice 0")
    os.kill(first.pid, signal.SIGCONT)
    assert line_of(first).startswith("refused alice")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        assert admin.check_token("guarded-tables", "accounts", token) == TokenCheck(False, newer, False)
        assert admin.check_token("guarded-tables", "accounts", newer) == TokenCheck(True, newer, True)
    for process in (first, second):
        process.communicate(timeout=TIMEOUT_S)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT * FROM entries").fetchall() == [("alice", "50")]


def test_a_pool_of_writers_is_refused_when_another_owner_takes_over_from_a_paused_one(
    broker: BackgroundBroker,
) -> None:
    clients.create_topic(broker.address, "pooled")
    first = start("writer_pool.py", broker.address, "pooled", "first")
    assert line_of(first) == "first: owner with epoch 1, from offset 0"
    writers = {record.value.split()[0] for record in records_of(broker, "pooled", 40)}
    assert writers <= {b"first.0", b"first.1"}
    os.kill(first.pid, signal.SIGSTOP)
    second = start("writer_pool.py", broker.address, "pooled", "second")
    taken_over = line_of(second)
    assert taken_over.startswith("second: owner with epoch 2, from offset ")
    fence_offset = int(taken_over.rsplit(" ", 1)[1])
    refused = sorted(line_of(first) for _ in range(2))
    assert [line.split(" records")[0].split()[:-1] for line in refused] == [
        ["first.0:", "refused", "after"],
        ["first.1:", "refused", "after"],
    ]
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(TIMEOUT_S) == 0

    records_of(broker, "pooled", fence_offset + 10)
    second.send_signal(signal.SIGINT)
    printed, errors = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 0, errors
    assert "second: releases the partition" in printed
    assert printed.count("refused after") == 2
    for record in records_of(broker, "pooled", fence_offset + 10):
        owner = b"first" if record.offset < fence_offset else b"second"
        assert record.value.startswith(owner), (record.offset, fence_offset)


def test_transfers_of_tasks_are_carried_out_once_although_the_program_is_killed(
    broker: BackgroundBroker,
) -> None:
    """The second process takes over the transactional ids, and Ctrl-C ends it."""
    requests = [f"alice bob {amount}" for amount in range(1, 101)]
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("transfers", partitions=3), NewTopic("accounts", partitions=1)])
    with Producer({"bootstrap.servers": broker.address}) as producer:
        for number, request in enumerate(requests):
            producer.send(Message("transfers", value=request, partition=number % 3))
    first = start("async_transfers.py", broker.address, "bank", 2)
    assert line_of(first) == "ready"
    accounts = {"bootstrap.servers": broker.address, "isolation.level": "read_committed"}
    found: list[ConsumerRecord] = []
    with Consumer({**accounts, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("accounts", 0)
        while not found:
            found += consumer.poll(WAIT_MS)
        first.kill()
        first.communicate()
        second = start("async_transfers.py", broker.address, "bank", 2)
        while len(found) < 2 * len(requests):
            found += consumer.poll(WAIT_MS)
        found += consumer.poll(200)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=TIMEOUT_S)
    changes = [int(record.value) for record in found if record.value is not None]
    assert sorted(changes) == sorted([*range(1, 101), *(-amount for amount in range(1, 101))])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_has_at_most_185_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 185


def test_a_bulk_load_killed_and_raced_writes_every_line_once(
    broker: BackgroundBroker, tmp_path: Path
) -> None:
    clients.create_topic(broker.address, "load")
    lines = [f"line {number}" for number in range(60_000)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines) + "\n")

    broken = start("bulk_load.py", broker.address, "load", file)
    records_of(broker, "load", 1)
    broken.kill()
    broken.communicate(timeout=TIMEOUT_S)
    racing = start("bulk_load.py", broker.address, "load", file)
    last = run("bulk_load.py", broker.address, "load", file)
    printed, _ = racing.communicate(timeout=TIMEOUT_S)

    assert last == printed == "60000 lines are in the topic\n"
    assert [record.value.decode() for record in records_of(broker, "load", 60_000)] == lines
    assert run("bulk_load.py", broker.address, "load", file) == "60000 lines are in the topic\n"


def test_a_database_is_read_in_order_although_its_reader_is_paused(
    broker: BackgroundBroker, tmp_path: Path
) -> None:
    """ "Another instance to take over", while the first was only paused."""
    clients.create_topic(broker.address, "rows")
    path = tmp_path / "rows.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")  # A reader stopped while it reads does not block the writer.
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value TEXT)")
    _insert(database, 0, 1000)

    reader = start("database_reader.py", broker.address, "rows", path)
    records_of(broker, "rows", 1000)
    reader.send_signal(signal.SIGSTOP)
    _insert(database, 1000, 2000)
    standby = start("database_reader.py", broker.address, "rows", path)
    records_of(broker, "rows", 2000)
    reader.send_signal(signal.SIGCONT)
    assert reader.stdout is not None
    while "another process has taken over" not in reader.stdout.readline():
        _insert(database, *_next(database))
    standby.kill()
    standby.communicate(timeout=TIMEOUT_S)
    _insert(database, *_next(database))
    total = _next(database)[0]

    records = records_of(broker, "rows", total)
    assert [int(record.key) for record in records] == list(range(total))
    reader.kill()
    reader.communicate(timeout=TIMEOUT_S)
    database.close()
    assert run("database_reader.py", broker.address, "rows", path, "--once").startswith("standing by")
    assert len(records_of(broker, "rows", total)) == total


def _insert(database: sqlite3.Connection, first: int, end: int) -> None:
    with database:
        database.executemany("INSERT INTO rows VALUES (?, ?)", ((n, f"row {n}") for n in range(first, end)))


def _next(database: sqlite3.Connection) -> tuple[int, int]:
    (count,) = database.execute("SELECT count(*) FROM rows").fetchone()
    return count, count + 10


def test_the_next_leader_of_a_state_machine_continues_from_its_log(broker: BackgroundBroker) -> None:
    clients.create_topic(broker.address, "balances", config={"cleanup.policy": "compact"})
    first = start("state_machine.py", broker.address, "balances")
    _say(first, "deposit anna 10", "transfer anna ben 4", "transfer ben anna 5")
    assert [_hear(first) for _ in range(4)] == [
        "leading: ", "done: deposit anna 10", "done: transfer anna ben 4", "refused: ben has only 4"
    ]  # fmt: skip
    second = start("state_machine.py", broker.address, "balances")
    _say(second, "transfer ben carl 4")
    _say(first, "deposit ben 1")
    assert _hear(first) == "done: deposit ben 1"

    first.kill()
    first.communicate(timeout=TIMEOUT_S)

    assert [_hear(second) for _ in range(2)] == ["leading: anna 6, ben 5", "done: transfer ben carl 4"]
    second.communicate(timeout=TIMEOUT_S)
    assert run("state_machine.py", broker.address, "balances") == "leading: anna 6, ben 1, carl 4\n"


def test_a_key_value_store_loses_no_acknowledged_command_when_its_leader_is_killed(
    broker: BackgroundBroker,
) -> None:
    """ "Acknowledged operations should not be lost", and every process can read them."""
    clients.create_topic(broker.address, "store", partitions=3)
    keys = ["a", "b", "c", "d"]
    leader = start("key_value_store.py", broker.address, "store")
    _ask(leader, "put a 1", "1")
    standby = start("key_value_store.py", broker.address, "store")
    _ask(standby, "add a 1", "failed: another process leads this shard")
    _ask(standby, "get a", "1")

    _say(leader, *(f"add {key} 1" for _ in range(500) for key in keys))
    answers = [_hear(leader) for _ in range(20)]
    leader.kill()
    assert leader.stdout is not None
    rest = leader.stdout.read()  # `communicate` would skip what `_hear` has in its buffer.
    leader.wait(TIMEOUT_S)
    answers += rest[: rest.rfind("\n") + 1].splitlines()  # The kill may have cut off the last line.
    acknowledged = {answer[4]: int(answer.split(": ")[1]) for answer in answers}

    values = {}
    for key in keys:
        values[key] = int(_insist(standby, f"add {key} 1000"))
        assert acknowledged.get(key, 0) <= values[key] - 1000 <= 501
    standby.communicate(timeout=TIMEOUT_S)
    assert standby.returncode == 0
    reader = run("key_value_store.py", broker.address, "store", commands="".join(f"get {k}\n" for k in keys))
    assert sorted(reader.splitlines()) == [f"get {key}: {value}" for key, value in values.items()]


def test_payments_are_written_once_although_the_broker_forgets_their_ids(
    cluster: Cluster, tmp_path: Path
) -> None:
    (broker,) = cluster.start(1, {"append.ids.max": "3"})
    clients.create_topic(broker.address, "payments")
    arguments = ("payments.py", broker.address, "payments", tmp_path / "notes.sqlite")
    assert run(*arguments, commands="1 100 to Anna\n2 50 to Ben\n") == (
        "payment 1 is at offset 0\npayment 2 is at offset 1\n"
    )

    # The process has crashed between the broker's answer and its note, and others write.
    notes = sqlite3.connect(tmp_path / "notes.sqlite", isolation_level=None)
    notes.execute("UPDATE notes SET offset = NULL")
    _write_with_ids(broker.address, "payments", range(2, 4))
    again = run(*arguments)
    assert again == "payment 1 is at offset 0\npayment 2 is at offset 1\n"

    # One that was noted and not sent is not in the log, which the broker cannot know.
    notes.execute("UPDATE notes SET offset = NULL WHERE number = '1'")
    notes.execute("INSERT INTO notes VALUES ('3', '70 to Carl', 1, NULL)")
    _write_with_ids(broker.address, "payments", range(4, 10))
    again = run(*arguments)
    assert again == "payment 1 is at offset 0\npayment 3 is at offset 10\n"
    values = [record.value for record in records_of(broker, "payments", 11)]
    assert values == [b"100 to Anna", b"50 to Ben", *[b"of another"] * 8, b"70 to Carl"]
    notes.close()


def _write_with_ids(address: str, topic: str, offsets: range) -> None:
    """Append one record at each of these offsets, each by a process of its own."""
    for offset in offsets:
        with Producer({"bootstrap.servers": address}) as producer:
            message = Message(topic, value="of another", partition=0)
            producer.send_at(offset, message, append_id=uuid.uuid4(), unused_before=offset).result(WAIT_MS)


def test_registers_lose_no_change_of_processes_that_change_the_same_keys(broker: BackgroundBroker) -> None:
    clients.create_topic(broker.address, "registers", config={"key.versions": "true"})
    processes = [start("registers.py", broker.address, "registers") for _ in range(3)]
    commands = "".join(f"add {key} 1\n" for _ in range(40) for key in ("a", "b"))
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(commands)
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors

    assert run("registers.py", broker.address, "registers", commands="get a\nget b\n") == "120\n120\n"


def test_registers_are_deleted_and_set_again_after_their_tombstones_are_gone(cluster: Cluster) -> None:
    """The version of a key is the offset of its tombstone, also once the tombstone is gone; without the files
    of the index it is that of a key that was never there."""
    (broker,) = cluster.start(1, {"log.cleaner.backoff.ms": "50"})
    config = {
        "key.versions": "true",
        "cleanup.policy": "compact",
        "delete.retention.ms": "0",
        "segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    clients.create_topic(broker.address, "registers", config=config)
    old = start("registers.py", broker.address, "registers")
    commands = ("set a 1", "set b 1", "get a", "del a", "del b", "get a", "add a 2", "del a")
    _say(old, *commands)
    assert [_hear(old) for _ in commands] == ["1", "1", "1", "", "", "", "2", ""]
    _wait_until_gone(broker, {b"a", b"b"})

    assert run("registers.py", broker.address, "registers", commands="add a 5\nget b\n") == "5\n\n"
    _say(old, "add a 1", "del a", "del b")
    assert [_hear(old) for _ in range(3)] == ["6", "", ""]
    _wait_until_gone(broker, {b"a", b"b"})
    broker.stop()
    for file in broker.directory.rglob("*.keys"):
        file.unlink()
    broker.start()
    broker.wait_ready(1)
    with Producer({"bootstrap.servers": broker.address}) as producer:
        # It was created and deleted twice since, and is absent as before: NO_VERSION fits.
        created = Message("registers", key="b", value="7", partition=0, expected_version=NO_VERSION)
        producer.send(created).result(WAIT_MS)
    _say(old, "add a 1", "add b 1")
    assert [_hear(old) for _ in range(2)] == ["1", "8"]
    _, errors = old.communicate(timeout=TIMEOUT_S)
    assert old.returncode == 0, errors


def _wait_until_gone(broker: BackgroundBroker, keys: set[bytes]) -> None:
    """Write records of other keys until compaction has removed all records of these."""
    for _ in range(600):
        with Producer({"bootstrap.servers": broker.address}) as producer:
            noise = [Message("registers", key=f"n{n}", value="x" * 400, partition=0) for n in range(4)]
            producer.send(*noise).result(WAIT_MS)
        if not keys & {record.key for record in records_of(broker, "registers", 1)}:
            return
    raise AssertionError(f"compaction did not remove {keys}")


def test_registers_begin_anew_with_a_topic_that_was_created_again(broker: BackgroundBroker) -> None:
    """Without the topic's id the version of the old topic would fit the record of the new one."""
    clients.create_topic(broker.address, "remade", config={"key.versions": "true"})
    process = start("registers.py", broker.address, "remade")
    _say(process, "set a 100")
    assert _hear(process) == "100"
    clients.delete_topic(broker.address, "remade")
    _create_once_gone(broker.address, "remade")
    assert run("registers.py", broker.address, "remade", commands="set a 1\n") == "1\n"
    _say(process, "add a 1")
    assert _hear(process) == "2"
    process.communicate(timeout=TIMEOUT_S)


def _create_once_gone(address: str, topic: str) -> None:
    """Create a topic again that is being deleted."""
    with Admin({"bootstrap.servers": address}) as admin:
        for _ in range(600):
            try:
                admin.create_topics([NewTopic(topic, 1, 1, {"key.versions": "true"})])
            except TopicExistsError:
                time.sleep(0.1)
            else:
                return
    raise AssertionError(f"{topic} was not deleted")


def test_a_paused_leader_of_a_key_value_store_resumes_as_a_standby(broker: BackgroundBroker) -> None:
    clients.create_topic(broker.address, "paused-store")
    first = start("key_value_store.py", broker.address, "paused-store")
    _ask(first, "add a 1", "1")
    second = start("key_value_store.py", broker.address, "paused-store")
    _ask(second, "get a", "1")
    first.send_signal(signal.SIGSTOP)
    assert _insist(second, "add a 10") == "11"
    _say(first, "add a 100")
    first.send_signal(signal.SIGCONT)
    assert _hear(first).startswith("add a 100: failed: ")
    _ask(first, "get a", "11")

    second.communicate(timeout=TIMEOUT_S)
    assert _insist(first, "add a 1000") == "1011"
    first.communicate(timeout=TIMEOUT_S)


def test_the_former_leader_of_a_shard_is_refused_and_reads_on(broker: BackgroundBroker) -> None:
    """ "Perhaps a new leader has been elected and appended first": the publish "will have no effect"."""
    clients.create_topic(broker.address, "two-leaders")
    address = {"bootstrap.servers": broker.address}
    place = TopicPartition("two-leaders", 0)
    store = runpy.run_path(str(EXAMPLES / "key_value_store.py"))
    with Producer(address) as producer, Consumer(address) as consumer:
        old, new = (store["Shard"](address, place, producer, consumer) for _ in range(2))
        assert old.append([["add", "k", "1"], ["add", "k", "x"], ["add", "k", "1"], ["get", "k"]]) == [
            "1", "refused: invalid literal for int() with base 10: 'x'", "2", "2"
        ]  # fmt: skip
        new.read_on()
        assert new.append([["put", "k", "7"]]) == ["7"]

        (answer,) = old.append([["add", "k", "1"]])
        assert answer.startswith("failed: ") and "3" in answer
        assert old.values == {"k": "2"}
        old.read_on()

        assert old.values == new.values == {"k": "7"}
        assert old.append([["add", "k", "1"]]) == ["8"]
        old.resign()
        new.resign()
    log = [record.value.decode() for record in records_of(broker, "two-leaders", 4)]
    assert log == ["add k 1", "add k 1", "put k 7", "add k 1"]


def _ask(store: subprocess.Popen[str], command: str, answer: str) -> None:
    """Send a command, and assert its answer."""
    _say(store, command)
    assert _hear(store) == f"{command}: {answer}"


def _insist(store: subprocess.Popen[str], command: str) -> str:
    """Repeat a command until the store carries it out. Returns the answer."""
    while True:
        _say(store, command)
        answer = _hear(store).removeprefix(f"{command}: ")
        if not answer.startswith("failed: "):
            return answer


def _say(process: subprocess.Popen[str], *commands: str) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{command}\n" for command in commands))
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removesuffix("\n")
