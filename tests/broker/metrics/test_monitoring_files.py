"""The dashboard and the alert rules ask only for what brokers serve, and say what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast_log.broker.metrics.row import MetricKind
from holdfast_log.broker.wiring.metrics import SECTIONS

CONFIG = Path(__file__).parents[3] / "config"
DASHBOARD: dict[str, Any] = json.loads((CONFIG / "grafana" / "holdfast.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((CONFIG / "prometheus" / "alerts.yml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
ROWS = {row.name: row for section in SECTIONS for row in section.rows}

OF_THE_SCRAPE = {"job", "instance"}
FROM_ELSEWHERE = {
    "up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
}  # fmt: skip
"""Metrics of Prometheus itself and of prometheus-client."""

_SELECTOR = re.compile(r"\b([a-z_]\w*)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    """Every query of the dashboard, its variables, and the rules."""
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]
    yield from (rule["expr"] for rule in RULES)


def served(name: str) -> set[str] | None:
    """The labels of a metric that is served; None if there is none of this name."""
    if name in FROM_ELSEWHERE:
        return set()
    row = ROWS.get(name)
    if row is None:
        row = ROWS.get(re.sub(r"_(?:sum|count)$", "", name))
        if row is None or row.kind is not MetricKind.SUMMARY:
            return None
    return set(row.labels)


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_asks_for_metrics_and_labels_that_are_served(query: str) -> None:
    named = set(re.findall(r"\b(?:kafka|holdfast|process|python|jvm)_\w+", query))
    assert named or "up{" in query

    for name in named:
        assert served(name) is not None, name
    for name, matchers in _SELECTOR.findall(query):
        if name in ROWS or served(name):
            assert set(_MATCHER.findall(matchers)) <= (served(name) or set()) | OF_THE_SCRAPE


def test_a_query_for_what_is_not_served_is_found() -> None:
    assert served("kafka_server_brokertopicmetrics_messagesin") is None
    assert served("kafka_brokers_count") is None
    assert served("kafka_network_requestmetrics_totaltimems_sum") == {"request", "quantile"}


def test_panels_have_ids_and_places_of_their_own() -> None:
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything) > 20
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_a_variable_of_a_query_is_declared() -> None:
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__all"} <= declared


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    for text in (rule["annotations"]["summary"], rule["annotations"]["description"]):
        assert text.endswith(".") and len(text) > 20
    assert rule["alert"].startswith("Holdfast")


def test_alerts_have_names_of_their_own() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_finds_nothing_wrong() -> None:
    for arguments in (
        ["check", "rules", str(CONFIG / "prometheus" / "alerts.yml")],
        ["check", "config", str(CONFIG / "prometheus" / "prometheus.yml")],
    ):
        found = subprocess.run(
            ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
