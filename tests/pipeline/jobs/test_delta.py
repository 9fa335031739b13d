"""Loads into Delta tables, where delta-spark is installed in a release for the installed Spark."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.pipeline.jobs.__main__ import main

HOME = Path(__file__).parents[3]
HAS_DELTA = importlib.util.find_spec("delta") is not None


@pytest.mark.skipif(not HAS_DELTA, reason=f"delta-spark is not installed beside Spark {pyspark.__version__}")
def test_runs_that_stop_before_and_after_deltas_commit_are_completed_once(
    bootstrap: str, tmp_path: Path
) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("to-delta", 2)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(40):
            producer.send(Message("to-delta", value=str(number), partition=number % 2))

    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.pipeline.jobs.delta_runs", bootstrap, "to-delta", tmp_path / "t"],
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["first"] == 20
    assert (seen["committed"], seen["repeated"]) == (30, ["done", 0, True])
    assert (seen["planned"], seen["resumed"], seen["nothing new"]) == (30, 10, "nothing new")
    assert seen["offsets"] == sorted([partition, offset] for partition in (0, 1) for offset in range(20))
    assert seen["ledger"] == {"to-delta": {"0": 20, "1": 20}}


@pytest.mark.skipif(HAS_DELTA, reason="delta-spark is installed")
def test_without_delta_spark_the_load_says_what_is_missing() -> None:
    arguments = ["load", "--bootstrap-server", "b:1", "--output", "o", "--topic", "t", "--format", "delta"]

    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 1
    assert f"delta-spark in a release for Spark {pyspark.__version__}" in result.output
