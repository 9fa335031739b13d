"""A soak of half a minute tests the soak itself: clients and brokers come and go, and records are counted."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.soak.ledger import Balance
from tests.soak.plot import draw
from tests.soak.soak import Outcome, Plan, soak
from tests.soak.trend import Trend
from tests.soak.usage import Sample
from tests.soak.visitors import KINDS

HOME = Path(__file__).parents[2]
FLAT = Trend("broker-1", "threads", "life 1", 9, 6.0, 1.0, 4.0)
GOOD = Outcome(Balance(acknowledged=3, consumed=3), [], [FLAT], 20, 2, [], 60.0)


OPENS_A_FILE = """
import os
from tests.soak.usage import usage_of
before = usage_of(os.getpid())
with open(os.devnull):
    after = usage_of(os.getpid())
print(after.descriptors - before.descriptors, after.threads, after.rss_bytes)
"""


@pytest.mark.timeout(900)
def test_a_short_soak_loses_nothing_and_sees_every_life(tmp_path: Path) -> None:
    plan = Plan(25.0, restart_every_s=10.0, sample_every_s=0.5, warm_up_s=3.0, stay_s=2.0)

    outcome = soak(tmp_path, plan)

    print(outcome, *outcome.trends, sep="\n")
    assert not outcome.balance.faults and not outcome.troubles
    assert 0 < outcome.balance.acknowledged <= outcome.balance.consumed
    assert outcome.restarts == 2 and outcome.visits >= len(KINDS)
    assert {trend.process for trend in outcome.trends} >= {"broker-1", "broker-2", "broker-3", "zookeeper"}
    assert {sample.life for sample in outcome.samples if sample.process == "broker-1"} == {1, 2}
    with open(tmp_path / "samples.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(outcome.samples)


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (replace(GOOD, balance=Balance(3, 2, lost=1)), "1 records lost"),
        (replace(GOOD, balance=Balance()), "no record was acknowledged"),
        (replace(GOOD, trends=[]), "no process lived long enough for a trend"),
        (replace(GOOD, trends=[replace(FLAT, growth=5.0)]), f"grows: {replace(FLAT, growth=5.0)}"),
        (replace(GOOD, troubles=["owner A: no visit succeeded"]), "owner A: no visit succeeded"),
    ],
)
def test_an_outcome_names_its_fault(outcome: Outcome, fault: str) -> None:
    assert outcome.faults == [fault]
    assert str(outcome).endswith("1 faults")


def test_an_outcome_without_faults_says_so() -> None:
    assert not GOOD.faults
    assert str(GOOD) == (
        "60 s, 2 restarts, 20 visits: 3 acknowledged, 3 consumed, 0 lost, 0 duplicated, "
        "1 of 1 trends flat, 0 faults"
    )


def test_usage_counts_a_descriptor_that_is_opened() -> None:
    """In a process of its own: in this one other threads open and close some."""
    done = subprocess.run(
        [sys.executable, "-c", OPENS_A_FILE], cwd=HOME, capture_output=True, text=True, check=True
    )
    opened, threads, rss_bytes = map(int, done.stdout.split())

    assert opened == 1
    assert threads >= 1 and rss_bytes > 0


def test_the_plot_has_a_line_for_every_process(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    samples = [
        Sample(float(at), name, 1 + (at > 5), float(at), at * 2**20, 30 + at, 4, 1000)
        for at in range(10)
        for name in ("broker-1", "zookeeper")
    ]

    draw(samples, tmp_path / "soak.svg")

    text = (tmp_path / "soak.svg").read_text()
    assert "broker-1" in text and "zookeeper" in text and "file descriptors" in text
