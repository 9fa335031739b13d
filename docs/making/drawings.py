"""Draws docs/drawings/*.txt: each text becomes an SVG of the same name. Run: python docs/making/drawings.py

    sequence The title
    actors Client | Leader of the partition | Follower
    Client > Follower: an arrow with a text      (>> is an arrow that does not arrive)
    Leader of the partition: a note at one actor / and its second line
    == a line across all

    logs The title
    marks high watermark 6, begins again 8
    Leader: 0-9
    Follower 2: 0-7

The colours follow the reader's system, light or dark.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "drawings"
STYLE = """
svg { color-scheme: light dark; --ink: #1c2127; --soft: #5a6470; --line: #b9bfc6; --fill: #ffffff;
  --accent: #0b6368; --wash: #e2efee; --bad: #9c2618;
  font: 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e9eb; --soft: #a3aeb8; --line: #56616a; --fill: #1e252a;
  --accent: #66c8c2; --wash: #173130; --bad: #f29886; } }
text { fill: var(--ink); } .soft { fill: var(--soft); } .bold { font-weight: 600; }
.ground { fill: var(--fill); }
.box { fill: var(--fill); stroke: var(--line); } .note { fill: var(--wash); stroke: none; }
.life { stroke: var(--line); stroke-dasharray: 3 4; }
.arrow { stroke: var(--accent); stroke-width: 1.6; fill: none; }
.head { fill: var(--accent); } .lost { stroke: var(--bad); stroke-width: 1.6; fill: none; }
.mark { stroke: var(--bad); stroke-width: 2; } .bad { fill: var(--bad); }
"""
_LETTER = 7.8
"""The width of a letter, about."""
_LINE = 18


class DrawingError(Exception):
    """A drawing's text cannot be read; the message names the line."""


@dataclass(frozen=True)
class Step:
    """One row of a sequence. Without `to` it is a note, without `actor` a line across all."""

    actor: str
    to: str
    lines: tuple[str, ...]
    arrives: bool = True


@dataclass
class Canvas:
    """Pieces of an SVG."""

    pieces: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> None:
        style = f' class="{kind}"' if kind else ""
        self.pieces.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box") -> None:
        self.pieces.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{kind}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.pieces.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>')

    def finished(self, title: str, width: float, height: float) -> str:
        ground = f'<rect width="{width:g}" height="{height:g}" rx="8" class="ground"/>'
        body = "\n".join([ground, *self.pieces])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-label="{escape(title)}">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
        )


def drawn(source: str) -> str:
    """The SVG of a drawing's text. Raises DrawingError."""
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.startswith("#")]
    kind, _, title = lines[0].partition(" ")
    if kind == "sequence":
        return _sequence(title, lines[1:])
    if kind == "logs":
        return _logs(title, lines[1:])
    raise DrawingError(f"{lines[0]!r}: a drawing begins with sequence or logs")


# Sequences ------------------------------------------------------------------------------------------------


def _sequence(title: str, lines: list[str]) -> str:
    actors = [name.strip() for name in lines[0].removeprefix("actors ").split("|")]
    steps = [_step(line, actors) for line in lines[1:]]
    centres = _centres(actors, steps)
    canvas = Canvas()
    width, y = centres[-1] + _half(actors[-1]) + 70, 58.0
    for step in steps:
        y = _draw_step(canvas, step, dict(zip(actors, centres, strict=True)), y, width)
    lifelines = Canvas()
    for name, x in zip(actors, centres, strict=True):
        lifelines.line(x, 40, x, y, "life")
        lifelines.box(x - _half(name), 10, 2 * _half(name), 30)
        lifelines.text(x, 30, name, "bold")
    lifelines.pieces += canvas.pieces
    return lifelines.finished(title, width, y + 10)


def _step(line: str, actors: list[str]) -> Step:
    if line.startswith("=="):
        return Step("", "", (line.removeprefix("==").strip(),))
    head, colon, words = line.partition(":")
    arrow = " >> " if " >> " in head else " > "
    actor, _, to = (part.strip() for part in head.partition(arrow))
    if not colon or actor not in actors or (to and to not in actors):
        raise DrawingError(f"{line!r}: write ACTOR: a note, or ACTOR > ACTOR: a text")
    return Step(actor, to, tuple(part.strip() for part in words.split("/")), arrow == " > ")


def _half(name: str) -> float:
    return max(44.0, len(name) * _LETTER / 2 + 12)


def _centres(actors: list[str], steps: list[Step]) -> list[float]:
    """Where the actors stand: far enough from each other for the texts between neighbours."""
    gaps = [max(150.0, _half(one) + _half(other) + 24) for one, other in pairwise(actors)]
    for step in steps:
        needed = max(len(words) for words in step.lines) * _LETTER + 34
        if not step.to:
            continue
        low, high = sorted((actors.index(step.actor), actors.index(step.to)))
        missing = needed - sum(gaps[low:high])
        for at in range(low, high):
            gaps[at] += max(0.0, missing) / (high - low)
    notes = [
        max(map(len, step.lines)) * _LETTER / 2 + 12
        for step in steps
        if step.actor == actors[0] and not step.to
    ]
    centres = [max([_half(actors[0]), *notes]) + 10]
    for gap in gaps:
        centres.append(centres[-1] + gap)
    return centres


def _draw_step(canvas: Canvas, step: Step, at: dict[str, float], y: float, width: float) -> float:
    """Draws a row at y. Returns where the next one begins."""
    height = len(step.lines) * _LINE
    if not step.actor:
        canvas.line(10, y + 12, width - 10, y + 12, "life")
        canvas.box(18, y, len(step.lines[0]) * _LETTER + 16, 24)
        canvas.text(26, y + 16, step.lines[0], "soft", "start")
        return y + 38
    x = at[step.actor]
    if not step.to:
        half = max(map(len, step.lines)) * _LETTER / 2 + 10
        canvas.box(x - half, y, 2 * half, height + 10, "note")
        for number, words in enumerate(step.lines):
            canvas.text(x, y + 18 + number * _LINE, words)
        return y + height + 22
    end = at[step.to]
    for number, words in enumerate(step.lines):
        canvas.text((x + end) / 2, y + 12 + number * _LINE, words)
    y += height + 2
    tip = end if step.arrives else (x + 3 * end) / 4
    way = 1 if end > x else -1
    canvas.line(x, y, tip - way * (7 if step.arrives else 0), y, "arrow" if step.arrives else "lost")
    if step.arrives:
        canvas.pieces.append(f'<path d="M{end:g} {y:g} l{-9 * way} -5 v10 z" class="head"/>')
    else:
        canvas.line(tip - 6, y - 6, tip + 6, y + 6, "lost")
        canvas.line(tip - 6, y + 6, tip + 6, y - 6, "lost")
    return y + 18


# Logs -----------------------------------------------------------------------------------------------------


def _logs(title: str, lines: list[str]) -> str:
    marks = []
    for part in lines[0].removeprefix("marks ").split(","):
        words, _, offset = part.strip().rpartition(" ")
        marks.append((words, int(offset)))
    rows = []
    for line in lines[1:]:
        name, _, span = line.partition(":")
        first, _, last = span.strip().partition("-")
        rows.append((name, int(first), int(last)))
    left = max(len(name) for name, _, _ in rows) * _LETTER + 30
    cell, top = 44, 24 + _LINE * len(marks)
    first, last = min(row[1] for row in rows), max(row[2] for row in rows)
    committed = marks[0][1]
    canvas = Canvas()
    for number, (name, begin, end) in enumerate(rows):
        y = top + number * 46
        canvas.text(left - 14, y + 23, name, "bold", "end")
        for offset in range(begin, end + 1):
            x = left + (offset - first) * cell
            canvas.box(x + 1, y, cell - 2, 34, "note" if offset < committed else "box")
            canvas.text(x + cell / 2, y + 22, str(offset), "" if offset < committed else "soft")
    bottom = top + len(rows) * 46
    for number, (words, offset) in enumerate(marks):
        x, y = left + (offset - first) * cell, 16 + number * _LINE
        canvas.line(x, y + 5, x, bottom, "mark")
        canvas.text(x, y, f"{words} {offset}", "bad")
    return canvas.finished(title, left + (last - first + 1) * cell + 60, bottom + 6)


def main() -> int:
    for source in sorted(FOLDER.glob("*.txt")):
        source.with_suffix(".svg").write_text(drawn(source.read_text()))
        print(source.with_suffix(".svg").name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
