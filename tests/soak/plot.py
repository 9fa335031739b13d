"""The plot of a soak: one row for each measure, one line for each process, dotted lines at restarts.

It needs matplotlib, which the extra `soak` installs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from tests.soak.usage import Sample

_ROWS = (
    ("rss_bytes", "resident memory, MiB", 2**20),
    ("descriptors", "file descriptors", 1),
    ("threads", "threads", 1),
    ("directory_bytes", "data directory, MiB", 2**20),
)
_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red")


def draw(samples: Iterable[Sample], path: Path) -> None:
    """Write the plot of all samples. The suffix of the path (.svg, .png) selects the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 12), layout="constrained")
    axes = figure.subplots(len(_ROWS), 1, sharex=True)
    lives = _lives(samples)
    processes = sorted({life[0].process for life in lives})
    colors = dict(zip(processes, _COLORS, strict=False))
    for axis, (name, label, unit) in zip(axes, _ROWS, strict=True):
        for life in lives:
            process = life[0].process
            axis.plot(
                [sample.at_s / 60 for sample in life],
                [getattr(sample, name) / unit for sample in life],
                color=colors[process],
                label=process if life[0].life == 1 else None,
                linewidth=1.2,
            )
            if life[0].life > 1:
                axis.axvline(life[0].at_s / 60, color=colors[process], linestyle=":", linewidth=0.7)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="lower right", ncols=len(processes))
    axes[-1].set_xlabel("minutes")
    figure.savefig(path)


def _lives(samples: Iterable[Sample]) -> list[Sequence[Sample]]:
    ordered = sorted(samples, key=lambda sample: (sample.process, sample.life, sample.at_s))
    return [list(life) for _, life in groupby(ordered, key=lambda sample: (sample.process, sample.life))]
