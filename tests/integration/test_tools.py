"""The command-line tools that describe, delete, verify and measure, against a broker."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.integration.clients import create_topic, produce
from tests.integration.waiting import until

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def run(script: str, bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPTS / f"{script}.sh"), "--bootstrap-server", bootstrap, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def printed(script: str, bootstrap: str, *arguments: str) -> str:
    done = run(script, bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def events(output: str, name: str) -> list[dict[str, Any]]:
    """The events named `name` among the JSON lines that a verifiable client prints."""
    return [event for event in map(json.loads, output.splitlines()) if event["name"] == name]


_topics = itertools.count(1)


@pytest.fixture
def bootstrap(shared_cluster: Cluster) -> str:
    """The address of a broker that tests share."""
    if not shared_cluster.brokers:
        shared_cluster.start()
    return shared_cluster.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with two partitions and ten records, all in partition 0."""
    topic = f"t{next(_topics)}"
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [b"%d" % number for number in range(10)], partition=0)
    return topic


def test_offsets_change_after_records_are_deleted(bootstrap: str, topic: str, tmp_path: Path) -> None:
    assert f"{topic}:0:10\n{topic}:1:0\n" in printed("get-offsets", bootstrap)
    file = tmp_path / "offsets.json"
    rows = [
        {"topic": topic, "partition": 0, "offset": 4},
        {"topic": topic, "partition": 1, "offset": 9},
        {"topic": "none", "partition": 0, "offset": 1},
    ]
    file.write_text(json.dumps({"partitions": rows, "version": 1}))
    done = run("delete-records", bootstrap, "--offset-json-file", str(file))
    assert done.returncode == 1, "two of the three deletions fail"
    assert f"partition: {topic}-0\tlow_watermark: 4\n" in done.stdout
    assert f"partition: {topic}-1\terror: OFFSET_OUT_OF_RANGE" in done.stdout
    assert "partition: none-0\terror: UNKNOWN_TOPIC_OR_PARTITION" in done.stdout
    only = ("--topic-partitions", f"{topic}:0")
    earliest = printed("get-offsets", bootstrap, *only, "--time", "earliest", "--json")
    assert json.loads(earliest) == [{"topic": topic, "partition": 0, "offset": 4}]
    late = printed("get-offsets", bootstrap, "--topic", topic, "--time", "99999999999999")
    assert late == f"{topic}:0:\n{topic}:1:\n"
    missing = run("get-offsets", bootstrap, "--topic", "none")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "topics.sh --list" in missing.stderr


def test_log_directories_and_api_versions_are_described(bootstrap: str, topic: str) -> None:
    told = json.loads(printed("log-dirs", bootstrap, "--describe", "--topic-list", topic))
    ((directory,),) = [broker["logDirs"] for broker in told["brokers"]]
    sizes = {row["partition"]: row["size"] for row in directory["partitions"]}
    assert directory["error"] is None
    assert sizes[f"{topic}-0"] > 0 == sizes[f"{topic}-1"]
    absent = run("log-dirs", bootstrap, "--describe", "--broker-list", "1,7")
    assert absent.returncode == 1
    assert "brokers 7 do not exist or are down; live brokers: 1" in absent.stderr

    assert re.search(
        r"\tProduce\(0\): 0 to \d+ \[usable: \d+\],\n", printed("broker-api-versions", bootstrap)
    )
    (broker,) = json.loads(printed("broker-api-versions", bootstrap, "--json"))
    assert broker["id"] == 1
    assert {"Produce", "Fetch", "JoinGroup"} <= {
        api["name"] for api in broker["apis"] if api["usableVersion"]
    }
    assert broker["features"]["holdfast.groups"]["minVersion"] == 1


def test_what_is_listed_is_printed_for_programs_too(bootstrap: str, topic: str, tmp_path: Path) -> None:
    def told(script: str, *arguments: str) -> Any:
        return json.loads(printed(script, bootstrap, *arguments, "--json"))

    assert {"topic": topic} in told("topics", "--list")
    printed("configs", bootstrap, "--topic", topic, "--alter", "--add-config", "retention.ms=7000")
    (described,) = told("topics", "--describe", "--topic", topic)
    assert (described["topic"], described["configs"]) == (topic, {"retention.ms": "7000"})
    assert len(described["topicId"]) == 22
    assert described["partitions"] == [
        {"partition": number, "leader": 1, "replicas": [1], "isr": [1]} for number in (0, 1)
    ]
    (without,) = told("topics", "--describe", "--topic", topic, "--unavailable-partitions")
    assert without["partitions"] == []
    assert told("topics", "--describe", "--topic", "none", "--if-exists") == []

    (settings,) = told("configs", "--topic", topic, "--describe")
    assert (settings["type"], settings["name"]) == ("topic", topic)
    assert settings["configs"] == [
        {"name": "retention.ms", "value": "7000", "isSensitive": False, "source": "DYNAMIC_TOPIC"}
    ]
    quota = ("--client", f"loader-{topic}")
    printed("configs", bootstrap, *quota, "--alter", "--add-config", "producer_byte_rate=1024")
    assert told("configs", *quota, "--describe") == [
        {"entity": {"client-id": f"loader-{topic}"}, "quotas": {"producer_byte_rate": 1024.0}}
    ]

    assert told("reassign-partitions", "--list") == []
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": number, "replicas": [1]} for number in (0, 9)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    done = run("reassign-partitions", bootstrap, "--verify", "--reassignment-json-file", str(plan), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == [
        {"topic": topic, "partition": 0, "state": "completed", "replicas": [1], "log_dirs": []},
        {"topic": topic, "partition": 9, "state": "no such partition", "replicas": None, "log_dirs": []},
    ]
    assert told("log-dirs", "--describe", "--topic-list", topic)["version"] == 1

    for refused in (("topics", "--delete", "--topic", topic), ("configs", "--topic", topic, "--alter")):
        wrong = run(refused[0], bootstrap, *refused[1:], "--json")
        assert wrong.returncode == 2 and "--json goes with" in wrong.stderr


def test_verifiable_clients_print_every_message(bootstrap: str) -> None:
    options = ("--topic", "v", "--max-messages", "20", "--repeating-keys", "2", "--value-prefix", "7")
    written = printed("verifiable-producer", bootstrap, *options)
    sent = events(written, "producer_send_success")
    assert [event["value"] for event in sent] == [f"7.{number}" for number in range(20)]
    (account,) = events(written, "tool_data")
    assert (account["sent"], account["acked"]) == (20, 20)

    member = ("--topic", "v", "--group-id", "checkers", "--max-messages", "20", "--verbose")
    read = printed("verifiable-consumer", bootstrap, *member)
    assert sum(event["count"] for event in events(read, "records_consumed")) == 20
    assert [event["value"] for event in events(read, "record_data")] == [event["value"] for event in sent]
    assert events(read, "offsets_committed")[-1]["offsets"] == [{"topic": "v", "partition": 0, "offset": 20}]
    assert json.loads(read.splitlines()[-1])["name"] == "shutdown_complete"


def test_a_verifiable_consumer_leaves_its_group_on_ctrl_c(bootstrap: str, topic: str) -> None:
    command = [str(SCRIPTS / "verifiable-consumer.sh"), "--bootstrap-server", bootstrap]
    command += ["--topic", topic, "--group-id", "leavers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        for line in consumer.stdout:
            if json.loads(line)["name"] == "offsets_committed":
                break
        consumer.send_signal(signal.SIGINT)
        rest = consumer.stdout.read()
        assert consumer.wait(300) == 0
    assert json.loads(rest.splitlines()[-1])["name"] == "shutdown_complete"
    shown = ("--describe", "--group", "leavers", "--state", "--json")
    until(lambda: "Empty" in printed("consumer-groups", bootstrap, *shown))


def test_the_performance_tools_print_rates_and_metrics(bootstrap: str, topic: str) -> None:
    written = printed(
        "producer-perf-test", bootstrap, "--topic", "p", "--num-records", "2000", "--throughput", "-1",
        "--record-size", "100", "--producer-props", "acks=1", "linger.ms=5", "--print-metrics",
    )  # fmt: skip
    assert re.search(
        r"^2000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\).* 99\.9th\.$", written, re.MULTILINE
    )
    assert re.search(r"^records_acknowledged +2000$", written, re.MULTILINE)
    assert re.search(r"^connection.apis.Produce.latency.count +[1-9]", written, re.MULTILINE)
    for more in ([], ["--bulk"], ["--group", "measurers"]):
        read = printed("consumer-perf-test", bootstrap, "--topic", "p", "--num-records", "2000", *more)
        titles, values = read.splitlines()
        row = dict(zip(titles.split(", "), values.split(", "), strict=True))
        assert row["data.consumed.in.nMsg"] == "2000"
        assert float(row["data.consumed.in.MB"]) == pytest.approx(2000 * 100 / 2**20, abs=0.001)
    short = run(
        "consumer-perf-test",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        "11",
        "--timeout",
        "10000",
        "--hide-header",
        "--print-metrics",
    )
    assert short.returncode == 1
    assert "10 of 11 messages were read" in short.stderr
    assert re.search(r"^records +10$", short.stdout, re.MULTILINE)
    assert re.search(rf"^lag.{topic}-0 +0$", short.stdout, re.MULTILINE)
