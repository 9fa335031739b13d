"""Reads the pages of a broker's HTTP listener, as an independent reader of Prometheus's format finds them."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import TypeAlias
from urllib.error import HTTPError

from prometheus_client.parser import text_string_to_metric_families

from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port

TIMEOUT_S = 60.0
Labels: TypeAlias = "frozenset[tuple[str, str]]"


class MonitoredAddress:
    """The address of a broker's HTTP listener, on a free port."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def settings(self) -> dict[str, str]:
        return {"metrics.http.listener": f"{HOST}:{self.port}"}

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page. Raises OSError if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> MetricValues:
        status, text = self.get("/metrics")
        assert status == 200, text
        return MetricValues(text)


class MetricValues:
    """The values of one page."""

    def __init__(self, text: str) -> None:
        self.types: dict[str, str] = {}
        self._values: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._values, f"{key} is there twice"
                self._values[key] = sample.value
                self.types[sample.name] = family.type

    def __getitem__(self, name: str) -> float:
        """The value without labels."""
        return self.of(name)

    def of(self, name: str, **labels: str) -> float:
        """The value with exactly these labels. Raises KeyError."""
        return self._values[name, frozenset(labels.items())]

    def all(self, name: str) -> Mapping[Labels, float]:
        """All values of a metric."""
        return {labels: value for (found, labels), value in self._values.items() if found == name}

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._values}
