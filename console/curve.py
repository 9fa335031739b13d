"""The curve of a rate over time, as SVG: no script draws it, and it needs no style of its own."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from holdfast_log.console.asking.snapshot import RateSample
from holdfast_log.console.wording import rate, span

WIDTH, HEIGHT = 640, 120
_TOP = 8


def curve(samples: Sequence[RateSample]) -> Markup:
    """The curve with its area. What it shows is also said in words, for those who do not see it."""
    if len(samples) < 2:
        return Markup('<p class="quiet">The curve begins when the second look at the cluster is done.</p>')
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    length_s = max(last_s - first_s, 1e-3)
    top = max(max(each.per_second for each in samples), 1.0)
    points = [
        (
            round((each.at_s - first_s) / length_s * WIDTH, 1),
            round(HEIGHT - each.per_second / top * (HEIGHT - _TOP), 1),
        )
        for each in samples
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    said = (
        f"Messages per second over the last {span(length_s)}: now {rate(samples[-1].per_second)}, "
        f"highest {rate(max(each.per_second for each in samples))}."
    )
    return Markup(
        '<figure class="curve"><svg viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" '
        'aria-label="{said}"><polygon class="area" points="0,{h} {line} {w},{h}"/>'
        '<polyline class="line" points="{line}"/></svg>'
        "<figcaption><span>{ago} ago</span><span>highest {top}</span><span>now</span></figcaption></figure>"
    ).format(
        w=WIDTH, h=HEIGHT, said=said, line=line, ago=span(length_s),
        top=rate(max(each.per_second for each in samples)),
    )  # fmt: skip
