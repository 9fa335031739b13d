"""Finds growth in the resources that a process uses, with least-squares lines through its samples. Pure.

*Within a life*: the line through all samples after the warm-up, from the start of a process to its stop. The
growth is the slope times the time between the first and the last of those samples.

*Across lives*: a value for each life, the median of the samples of equal age, and the line through those. The
growth is the slope times the number of restarts between them. Growth of the data that a process loads when it
starts, from its disk or from ZooKeeper, shows across lives and not within one.

The first life of a process that has several began with an empty disk. It is left out across lives, and its
descriptors are not judged: a log that is created opens only its log file, and the two files of its index when
minutes later the first entries are written there; one that is loaded has all three open from its start.

Growth beyond the allowance fails. Shrinking never does.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.soak.usage import Sample

MIB = 2**20
JUDGED_SAMPLES_MIN = 6
"""A life with fewer samples than this after the warm-up has no trend."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much a value may grow: by `absolute`, or by the share `share` of its mean, whichever is more."""

    absolute: float
    share: float

    def of(self, level: float) -> float:
        return max(self.absolute, self.share * level)


ALLOWANCES: Mapping[str, Allowance] = {
    "rss_bytes": Allowance(8 * MIB, 0.08),
    "descriptors": Allowance(12, 0.15),
    "threads": Allowance(4, 0.0),
}
"""The allowance of each measure, by the name of the sample's field. The number of descriptors varies with the
number of connected clients."""

UNBOUND = {("zookeeper", "rss_bytes")}
"""Process and measure of trends that are not judged: ZooKeeper's Java process fills its heap, of at most 128
MB, before it collects any garbage."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through `points` values of `measure`. `where` is `life N` or `lives`; `level` is the values'
    mean."""

    process: str
    measure: str
    where: str
    points: int
    level: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.allowed

    def __str__(self) -> str:
        unit = MIB if self.measure == "rss_bytes" else 1
        name = "RSS in MiB" if self.measure == "rss_bytes" else self.measure
        return (
            f"{self.process}, {self.where}, {name}: mean {self.level / unit:.1f}, growth "
            f"{self.growth / unit:+.1f} of {self.allowed / unit:.1f} allowed, {self.points} points"
        )


def trends(samples: Iterable[Sample], warm_up_s: float) -> list[Trend]:
    """The trends of every measure: within each life that lasted long enough, and across those lives."""
    warm = [sample for sample in samples if sample.age_s >= warm_up_s]
    found = []
    for process, of_process in groupby(sorted(warm, key=_place), key=lambda sample: sample.process):
        lives = [list(life) for _, life in groupby(of_process, key=lambda sample: sample.life)]
        lives = [life for life in lives if len(life) >= JUDGED_SAMPLES_MIN]
        for measure, allowance in ALLOWANCES.items():
            if (process, measure) in UNBOUND:
                continue
            later = [life for life in lives if life[0].life > 1]
            judged = later if later and measure == "descriptors" else lives
            found += [_within(life, process, measure, allowance) for life in judged]
            if len(later) > 1:
                found.append(_across(later, process, measure, allowance))
    return found


def _place(sample: Sample) -> tuple[str, int, float]:
    return sample.process, sample.life, sample.age_s


def _within(life: Sequence[Sample], process: str, measure: str, allowance: Allowance) -> Trend:
    ages = [sample.age_s for sample in life]
    return _trend(process, measure, f"life {life[0].life}", ages, _values(life, measure), allowance)


def _across(lives: Sequence[Sequence[Sample]], process: str, measure: str, allowance: Allowance) -> Trend:
    """The trend across lives. Of each life it uses only the samples up to the age that every life reached."""
    oldest = min(life[-1].age_s for life in lives)
    medians = [
        statistics.median(_values([sample for sample in life if sample.age_s <= oldest] or life[:1], measure))
        for life in lives
    ]
    numbers = [float(life[0].life) for life in lives]
    return _trend(process, measure, "lives", numbers, medians, allowance)


def _values(samples: Sequence[Sample], measure: str) -> list[float]:
    return [float(getattr(sample, measure)) for sample in samples]


def _trend(
    process: str,
    measure: str,
    where: str,
    places: Sequence[float],
    values: Sequence[float],
    allowance: Allowance,
) -> Trend:
    slope = statistics.linear_regression(places, values).slope
    level = statistics.fmean(values)
    growth = slope * (places[-1] - places[0])
    return Trend(process, measure, where, len(values), level, growth, allowance.of(level))
