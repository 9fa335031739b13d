"""The broker benchmark can be run in parts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks.broker import main
from benchmarks.cases import librdkafka_cases, raw_cases


@pytest.mark.parametrize("part", ["0/4", "5/4", "2", "a/b", "-1/2", "1/0"])
def test_an_invalid_part_is_refused_before_a_broker_starts(part: str) -> None:
    result = CliRunner().invoke(main, ["--part", part])

    assert result.exit_code == 2
    assert "is not like 2/5" in result.output


def test_the_cases_cover_every_combination_of_produce_and_every_kind() -> None:
    produce = [case for case in librdkafka_cases() if case.kind == "produce"]

    assert {case.acks for case in produce} == {"0", "1", "all"}
    assert {case.record_bytes for case in produce} == {100, 1000}
    assert {case.batch_bytes for case in produce} == {16 << 10, 64 << 10, 1 << 20}
    assert {case.partitions for case in produce} == {1, 6}
    assert len(produce) == 3 * 2 * 3 * 2
    assert {case.kind for case in librdkafka_cases()} == {"produce", "tail_fetch", "cold_fetch"}
    assert {case.kind for case in raw_cases()} == {"produce", "fetch"}
