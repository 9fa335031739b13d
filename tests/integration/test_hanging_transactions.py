"""A transaction that no coordinator knows: transactions.sh finds and aborts it."""

from __future__ import annotations

from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.clients import consume
from tests.integration.test_transactions_script import SETTINGS, WAIT_S, begin, rows, run
from tests.integration.waiting import until

STATE = "__transaction_state"


def broker_with(brokers: list[BackgroundBroker], topic: str) -> BackgroundBroker:
    """The broker that has the only replica of a topic."""
    (found,) = [each for each in brokers if (each.log_dirs[0] / f"{topic}-0").exists()]
    return found


def lose_what_it_coordinates(broker: BackgroundBroker) -> None:
    """Empty the log of `__transaction_state` of a broker that is stopped, as a disk would leave it that lies
    about what it has written."""
    for path in (broker.log_dirs[0] / f"{STATE}-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()


def test_a_hanging_transaction_is_found_and_aborted(cluster: Cluster) -> None:
    """It hangs because its coordinator has lost its log."""
    brokers = cluster.start(2, SETTINGS)
    bootstrap = cluster.bootstrap
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("journal", 1, assignment={0: [1, 2]})])
    begin(bootstrap, "lost", b"lost")
    coordinator = broker_with(brokers, STATE)
    coordinator.stop()
    lose_what_it_coordinates(coordinator)
    cluster.make_whole()
    begin(bootstrap, "later", b"later").commit_transaction(WAIT_S)

    everywhere = ("find-hanging", "--topic", "journal", "--max-transaction-timeout", "0")
    until(lambda: len(rows(bootstrap, *everywhere)) == 1)
    (found,) = rows(bootstrap, *everywhere)
    assert (found["topic"], found["partition"], found["startOffset"]) == ("journal", 0, 0)
    assert rows(bootstrap, "find-hanging", "--topic", "journal") == []
    for broker in ("1", "2"):
        # The follower may copy the end of the later transaction only now.
        until(lambda broker=broker: len(rows(bootstrap, *everywhere, "--broker-id", broker)) == 1)
        (at_one,) = rows(bootstrap, *everywhere, "--broker-id", broker)
        assert (at_one["producerId"], at_one["startOffset"]) == (found["producerId"], 0)
    mistaken = run(bootstrap, "abort", "--topic", "journal", "--partition", "0", "--start-offset", "1")
    assert mistaken.returncode == 1
    assert "no transaction that begins at offset 1" in mistaken.stderr

    done = run(bootstrap, "abort", "--topic", "journal", "--partition", "0", "--start-offset", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(bootstrap, *everywhere) == []
    assert consume(bootstrap, "journal", 1, **{"isolation.level": "read_committed"}) == [b"later"]
