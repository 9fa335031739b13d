"""The comparison with peers: medians, ratios in one direction, the table, the plots, and the page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from benchmarks import peers
from benchmarks.peer_plots import write_plots
from benchmarks.peer_report import (
    BEGIN,
    END,
    PeerReport,
    PeerRun,
    RowText,
    digits,
    errors,
    from_text,
    insert,
    page_section,
    table,
    to_text,
)
from benchmarks.peer_rows import ROWS, UNITS
from benchmarks.peers import in_turn, is_steady

LABELS = {"ours": "Ours", "peer": "Peer"}


def report(runs: list[PeerRun], rows: list[RowText] | None = None) -> PeerReport:
    shown = [RowText("row", "A row", ("requests", "p99"))] if rows is None else rows
    return PeerReport("Measured here.", LABELS, ["ours"], ["peer"], shown, runs)


def runs_of(system: str, *figures: dict[str, float], row: str = "row") -> list[PeerRun]:
    return [PeerRun(row, system, number, found) for number, found in enumerate(figures, 1)]


MEASURED = report(
    runs_of(
        "ours", {"requests": 100, "p99": 2.0}, {"requests": 300, "p99": 4.0}, {"requests": 200, "p99": 3.0}
    )
    + runs_of(
        "peer", {"requests": 200, "p99": 8.0}, {"requests": 200, "p99": 4.0}, {"requests": 200, "p99": 6.0}
    )
)


def test_a_ratio_above_1_is_better_whether_more_or_less_of_the_figure_is() -> None:
    requests = MEASURED.ahead("row", "ours", "peer", "requests")
    p99 = MEASURED.ahead("row", "ours", "peer", "p99")

    assert requests is not None and (requests.median, requests.low, requests.high) == (1.0, 0.5, 1.5)
    assert p99 is not None and (p99.median, p99.low, p99.high) == (2.0, 1.0, 4.0)


def test_rounds_are_compared_with_the_same_round_of_the_peer_and_a_failed_one_with_none() -> None:
    broken = report(
        [
            PeerRun("row", "ours", 1, {"requests": 10.0}),
            PeerRun("row", "ours", 2, error="lost its way"),
            PeerRun("row", "ours", 3, {"requests": 30.0}),
            *runs_of("peer", {"requests": 20.0}, {"requests": 1.0}, {"requests": 20.0}),
        ]
    )

    ratio = broken.ahead("row", "ours", "peer", "requests")
    assert ratio is not None and (ratio.low, ratio.high, ratio.rounds) == (0.5, 1.5, 2)
    assert "(failed)" in table(broken)
    assert errors(broken) == ["row, ours, round 2: lost its way"]
    assert "lost its way" in page_section(broken, report([], []), [])


def test_the_table_has_medians_with_their_range_and_marks_what_is_behind() -> None:
    behind = report(runs_of("ours", {"requests": 150.0}) + runs_of("peer", {"requests": 200.0}))

    lines = table(MEASURED).splitlines()
    assert lines[0] == "| What | Unit | Peer | Ours | Ours : Peer |"
    assert lines[2] == "| A row | requests/s | 200 (200 to 200) | 200 (100 to 300) | 1.00 (0.50 to 1.50) |"
    assert lines[3] == "|  | p99, ms | 6 (4 to 8) | 3 (2 to 4) | 2.00 (1.00 to 4.00) |"
    assert table(behind).splitlines()[2] == "| A row | requests/s | 200 | 150 | **0.75** |"


@pytest.mark.parametrize("limit", [{"generator": 0.95}, {"late": 1.5}])
def test_figures_that_the_generator_may_have_limited_have_a_star(limit: dict[str, float]) -> None:
    limited = report(
        runs_of("ours", {"requests": 100.0, **limit})
        + runs_of("peer", {"requests": 100.0, "generator": 0.5, "late": 0.5})
    )

    assert table(limited).splitlines()[2] == "| A row | requests/s | 100 | 100\\* | 1.00 |"


@pytest.mark.parametrize(
    ("number", "text"),
    [(51_632.4, "51,632"), (100.0, "100"), (28.36, "28.4"), (1.0, "1"), (0.1812, "0.18"), (0.0, "0")],
)
def test_numbers_have_the_digits_that_a_measurement_has(number: float, text: str) -> None:
    assert digits(number) == text


def test_a_report_survives_its_file() -> None:
    assert from_text(to_text([MEASURED, report([])])) == [MEASURED, report([])]


def test_the_generated_part_of_a_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nstale\n{END}\n\nThe rest.\n")

    insert(page, page_section(MEASURED, report([], []), [("A plot", "benchmarks/plot.svg")]))
    once = page.read_text()
    insert(page, page_section(MEASURED, report([], []), [("A plot", "benchmarks/plot.svg")]))

    assert page.read_text() == once
    assert once.startswith(f"# Title\n\n{BEGIN}\n")
    assert once.endswith(f"{END}\n\nThe rest.\n")
    assert "stale" not in once and "![A plot](benchmarks/plot.svg)" in once
    page.write_text("# Title\n")
    with pytest.raises(ValueError, match="has no marks"):
        insert(page, "new")


def test_plots_are_drawn_of_the_rows_that_were_measured(tmp_path: Path) -> None:
    rows = [RowText(row.name, row.title, row.shown) for row in ROWS]
    figures = {"requests": 9.0, "p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0, "cpu_gb": 0.5}
    everywhere = [run for row in rows for name in LABELS for run in runs_of(name, figures, row=row.name)]

    written = write_plots(report(everywhere, rows), tmp_path)

    assert [name for _, name in written] == ["connections.svg", "latency.svg", "processor-time.svg"]
    for title, name in written:
        texts = {element.text for element in ElementTree.parse(tmp_path / name).iter() if element.text}
        assert {title, "Ours", "Peer"} <= texts
    first = (tmp_path / "latency.svg").read_bytes()
    write_plots(report(everywhere, rows), tmp_path)
    assert (tmp_path / "latency.svg").read_bytes() == first
    only = [run for run in everywhere if run.row == "paced"]
    assert [name for _, name in write_plots(report(only, rows), tmp_path / "some")] == ["latency.svg"]


def test_rows_have_names_of_their_own_and_known_figures() -> None:
    names = [row.name for row in ROWS]

    assert len(names) == len(set(names))
    assert all(key in UNITS for row in ROWS for key in row.shown)


def test_each_system_is_first_as_often_as_the_others() -> None:
    orders = [in_turn(["a", "b", "c"], number) for number in range(1, 7)]

    for place in range(3):
        assert sorted(order[place] for order in orders) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    ("rates", "steady"),
    [([], False), ([9] * 4, False), ([1, 2, 3, 10, 20], False), ([1, 2, 3, 10, 10.4], True), ([9] * 5, True)],
)
def test_a_system_is_warm_when_its_rate_no_longer_rises(rates: list[float], steady: bool) -> None:
    assert is_steady(rates) is steady


def test_rows_that_do_not_exist_are_refused_before_anything_starts() -> None:
    result = CliRunner().invoke(peers.main, ["--only", "nothing-like-that"])

    assert result.exit_code == 2
    assert "--list prints them" in result.output


def test_the_page_is_written_anew_from_kept_figures(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(f"{BEGIN}\n{END}\n")
    kept = tmp_path / "kept.json"
    kept.write_text(to_text([MEASURED, report([], [])]))

    result = CliRunner().invoke(peers.main, ["--from", str(kept), "--docs", str(tmp_path)])

    assert result.exit_code == 0, result.output
    assert "| A row | requests/s |" in (tmp_path / "benchmarks.md").read_text()
    assert from_text((tmp_path / "benchmarks" / "results.json").read_text())[0] == MEASURED
    assert re.search(r'^\{"benchmark": "peers"', result.output, re.MULTILINE)
