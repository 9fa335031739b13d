"""What the campaign says about the costs it has measured, and what it says nothing about."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.peer_report import insert
from tests.hostile import campaign
from tests.hostile.campaign import Budget, _ways, shares_of, versions_of
from tests.hostile.generator import served_apis, variants
from tests.hostile.kept_rows import KeptRows
from tests.hostile.neighbour import Pace, pace_of
from tests.hostile.report import BEGIN, END, Row, failed_row, over_limits, section, table

QUIET = Pace(rounds=200, failed=0, p50_ms=1, p99_ms=20, longest_ms=30)
GOOD = Row("Fetch", 12, 9, 49.0, 2000, 5000, 200 << 20, 1 << 20, QUIET, QUIET, QUIET)


def test_a_row_within_all_limits_is_over_none() -> None:
    assert GOOD.over() == []
    assert "All are within the limits." in section("Here.", [GOOD])


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (replace(GOOD, longest_ms=51.0), "a turn took 51 ms"),
        (replace(GOOD, grown_bytes=300_000_000), "memory grew by 300.0 MB"),
        (replace(GOOD, left_bytes=70_000_000), "70.0 MB of memory did not return"),
        (replace(GOOD, during=replace(QUIET, p99_ms=41.0)), "the neighbour's p99 rose from 20.0 to 41.0 ms"),
        (replace(GOOD, during=replace(QUIET, failed=1)), "1 of the neighbour's 200 rounds failed"),
        (replace(GOOD, controller=replace(QUIET, longest_ms=1001.0)), "waited 1001 ms"),
    ],
)
def test_each_limit_is_told_when_it_is_exceeded(row: Row, text: str) -> None:
    (found,) = over_limits([GOOD, row])
    assert found.startswith("Fetch v12: ") and text in found
    assert "**Fetch**" in table([row])
    assert found in section("Here.", [row])


def test_a_campaign_that_was_interrupted_knows_what_it_has_measured(tmp_path: Path) -> None:
    path = tmp_path / "results"
    kept = KeptRows(path)
    slow = replace(GOOD, version=3, during=replace(QUIET, longest_ms=math.inf), where="here\nand there")
    for row in (GOOD, slow, failed_row("Fetch", 2, "the broker does not serve")):
        kept.add(row)
    with path.open("a") as file:
        file.write('{"api": "Fet')
    again = KeptRows(path)
    assert again.rows == kept.rows
    again.add(GOOD)
    assert KeptRows(path).rows == kept.rows
    assert again.has("Fetch", 2) and not again.has("Fetch", 4) and not again.has("Produce", 3)
    assert over_limits(again.rows) == ["Fetch v2: the broker does not serve"]


def test_a_version_without_findings_of_others_is_attacked_in_the_few_costly_ways() -> None:
    (api,) = [each for each in served_apis() if each.name == "Metadata"]
    few = list(variants(api, is_short=True))
    assert _ways(api, api.min_version + 1, "all", []) == few
    assert len(_ways(api, api.max_version, "all", [])) > len(few)
    assert _ways(api, api.max_version, "newest", []) == few


def test_short_rounds_of_a_neighbour_may_more_than_double() -> None:
    fast = replace(QUIET, p99_ms=1.0)
    assert replace(GOOD, before=fast, during=replace(QUIET, p99_ms=10.0)).over() == []
    assert replace(GOOD, before=fast, during=replace(QUIET, p99_ms=10.1)).over()


def test_a_pace_has_percentiles_and_counts_what_failed() -> None:
    pace = pace_of([*map(float, range(199, 0, -1)), math.inf])
    assert pace == Pace(200, 1, 100.0, 198.0, math.inf)
    assert pace_of([5.0]) == Pace(1, 0, 5.0, 5.0, 5.0)


def test_the_table_goes_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "costliest-requests.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    insert(page, section("Here.", [GOOD]))
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n\nHere.") and text.endswith(f"{END}\nafter\n")
    assert "| Fetch | 12 | 9 | 49 | 2000 B | 5000 B |" in text and "old" not in text


def test_the_page_of_the_repository_has_the_marks() -> None:
    text = Path("docs/costliest-requests.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1


def test_versions_share_the_time_that_is_left() -> None:
    now_s = 0.0
    budget = Budget(1, 3, lambda: now_s)
    assert budget.next_share() == 20
    now_s = 30.0  # The first took longer than its share.
    assert budget.next_share() == 15
    now_s = 70.0
    assert budget.next_share() == 0
    assert Budget(None, 3, lambda: now_s).next_share() == math.inf


def test_the_newest_and_the_oldest_versions_have_more_of_the_time() -> None:
    now_s = 0.0
    (api,) = [each for each in served_apis() if each.name == "Metadata"]
    versions = versions_of(api, "all")
    shares = sum(shares_of(api, version) for version in versions)
    budget = Budget(1, shares, lambda: now_s)
    for version in versions:
        now_s += budget.next_share(shares_of(api, version))
    assert now_s == pytest.approx(60)
    assert shares_of(api, api.max_version) == shares_of(api, api.min_version) > shares_of(api, versions[2])


def test_every_version_of_every_api_is_attacked_once_and_the_newest_first() -> None:
    for api in served_apis():
        found = versions_of(api, "all")
        assert sorted(found) == list(api.versions) and found[0] == api.max_version
        assert versions_of(api, "newest") == [api.max_version]


def paces_that_count(monkeypatch: pytest.MonkeyPatch, *found: Pace) -> tuple[Pace, int]:
    """The client's pace that counts of a sequence in whose attempts it had these, and how many were made."""
    left = list(found)
    watched = SimpleNamespace(target=None, paces_since=lambda began_s: (left.pop(0), QUIET))
    cost = SimpleNamespace(requests=1, longest_ms=1.0, grown_bytes=0, answer_bytes=1)
    monkeypatch.setattr(campaign, "repeated", lambda *_, **__: cost)
    monkeypatch.setattr(campaign, "_PACE_S", 0.0)
    api = served_apis()[0]
    attacked = campaign.Version(cast(Any, watched), api, api.max_version, 1, 1.0)
    attacked.findings.append(cast(Any, SimpleNamespace(cost=cost)))
    attacked._repeat(1, True, 1.0, QUIET)
    ((client, _),) = attacked.paces
    return client, len(found) - len(left)


def test_a_sequence_is_sent_again_where_the_client_seems_to_have_waited_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, slower = replace(QUIET, p99_ms=50), replace(QUIET, p99_ms=60)
    failed = replace(slow, failed=1)
    assert paces_that_count(monkeypatch, QUIET, slow) == (QUIET, 1)
    assert paces_that_count(monkeypatch, slower, QUIET, slow) == (QUIET, 2)
    assert paces_that_count(monkeypatch, slower, slow, slower) == (slow, 3)
    assert paces_that_count(monkeypatch, slow, failed, QUIET) == (failed, 2), "a failed round always counts"
