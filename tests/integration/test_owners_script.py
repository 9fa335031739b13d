"""owners.sh against a broker: it shows owners, history and queue, and releases by force."""

from __future__ import annotations

import functools

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE
from tests.cluster import Cluster
from tests.integration import clients, scripts
from tests.integration.owners import Owner

run = functools.partial(scripts.run, "owners")
rows = functools.partial(scripts.rows, "owners")


def test_owners_history_and_queue_are_shown_and_an_owner_is_released(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    bootstrap = cluster.bootstrap
    clients.create_topic(bootstrap, "log")
    anna, ben, carl = (Owner(broker.port, name) for name in ("anna", "ben", "carl"))
    anna.claim("log")
    assert [anna.write("log") for _ in range(3)] == [0, 0, 0]
    ben.claim("log", generation=1)
    queued = carl.claim("log", generation=IF_FREE, wait_timeout_ms=-1)
    assert queued.error_code == ErrorCode.CLAIM_QUEUED

    (owner,) = rows(bootstrap, "--list", "--topic", "log")
    assert (owner["resource"], owner["ownerId"], owner["generation"]) == ("log-0", "ben", 2)
    (described,) = rows(bootstrap, "--describe", "--topic", "log", "--partition", "0")
    assert (described["claims"], described["steals"], described["fenceOffset"]) == (2, 1, 3)
    past = rows(bootstrap, "--history", "--topic", "log")
    assert [(row["ownerId"], row["generation"], row["startOffset"]) for row in past] == [
        ("anna", 1, 0),
        ("ben", 2, 3),
    ]
    assert [row["endedBy"] for row in past] == ["STOLEN", None]
    (waiter,) = rows(bootstrap, "--waiters")
    assert (waiter["ownerId"], waiter["position"]) == ("carl", 1)
    assert "ben" in run(bootstrap, "--list").stdout

    named = ("--group", owner["group"], "--topic", "log", "--partition", "0")
    mistaken = run(bootstrap, "--release", *named, "--generation", "1")
    assert mistaken.returncode == 1
    assert "generation" in mistaken.stderr
    released = run(bootstrap, "--release", *named, "--generation", "2", "--comment", "stuck")
    assert released.returncode == 0, released.stderr
    assert released.stdout == "Released log-0, which ben owned with generation 2.\n"
    assert ben.socket.is_hung_up()
    (promoted,) = rows(bootstrap, "--list", "--topic", "log")
    assert (promoted["ownerId"], promoted["generation"]) == ("carl", 3)


def test_wrong_usage_exits_with_status_2_and_the_reason(cluster: Cluster) -> None:
    for arguments, complaint in (
        ((), "one of --list"),
        (("--list", "--history"), "one of --list"),
        (("--list", "--partition", "0"), "--partition needs --topic"),
        (("--list", "--topic", "t", "--resource", "r"), "exclude each other"),
        (("--list", "--generation", "1"), "need --release"),
    ):
        done = run("localhost:1", *arguments)
        assert done.returncode == 2
        assert complaint in done.stderr
