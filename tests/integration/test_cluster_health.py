"""The health script on a real cluster: status 0 when all is well, 1 and a remedy when a broker is dead."""

from __future__ import annotations

import json

from tests.cluster import Cluster
from tests.integration.clients import create_topic
from tests.integration.programs import run_module
from tests.integration.waiting import until

MODULE = "holdfast_log.clients.tools.cluster_health"


def test_the_script_sees_a_dead_broker_and_its_return(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    create_topic(cluster.bootstrap, "orders", partitions=3, replicas=2)
    arguments = ("--bootstrap-server", first.address, "--brokers", "2")
    well = run_module(MODULE, *arguments)
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout == "The cluster is healthy: 2 brokers, 1 topics, 3 partitions.\n"

    cluster.lose(second)

    def is_seen() -> bool:
        ill = run_module(MODULE, *arguments)
        return (
            ill.returncode == 1
            and "Broker 2 is down, and has replicas of 3 partitions. Start it" in ill.stdout
        )

    until(is_seen)
    told = json.loads(run_module(MODULE, *arguments, "--json").stdout)
    assert told["healthy"] is False and told["brokers"] == [1]
    assert all(each["what"] and each["remedy"] for each in told["troubles"])
    second.start()
    second.wait_ready(2)
    until(lambda: run_module(MODULE, *arguments).returncode == 0)


def test_a_cluster_that_cannot_be_reached_is_not_healthy(cluster: Cluster) -> None:
    absent = run_module(MODULE, "--bootstrap-server", "127.0.0.1:1")
    assert absent.returncode == 1
    assert "Check that a broker runs there" in absent.stderr
