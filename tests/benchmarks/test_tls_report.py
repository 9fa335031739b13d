"""The table of TLS beside plaintext has medians and ratios of rounds, and gets its place in the page."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peer_report import insert
from benchmarks.tls_report import (
    BEGIN,
    END,
    KERNEL,
    OURS,
    PEER,
    PLAIN,
    SECURE,
    Rates,
    TlsReport,
    as_json,
    page_section,
    rows,
)

MEASURED = TlsReport(
    "Somewhere.",
    {
        (OURS, PLAIN): [Rates(100, 200, 1.0, 0.5), Rates(120, 220, 1.0, 0.5), Rates(110, 210, 1.0, 0.5)],
        (OURS, SECURE): [Rates(50, 100, 2.0, 1.0), Rates(60, 110, 2.0, 1.0), Rates(55, 105, 2.0, 1.0)],
        (PEER, PLAIN): [Rates(50, 100, 2.0, 0.0), Rates(40, 110, 2.0, 1.0), Rates(55, 105, 2.0, 1.0)],
        (PEER, SECURE): [Rates(25, 50, 4.0, 2.0), Rates(30, 55, 4.0, 2.0), Rates(27.5, 52.5, 4.0, 2.0)],
    },
)


def test_rows_have_medians_of_the_rounds_and_ratios_that_say_who_is_ahead() -> None:
    found = {name: cells for name, *cells in rows(MEASURED)}

    assert found["Holdfast, without TLS"][0] == "110 (100 to 120)"
    assert found["Holdfast: with TLS to without"][:2] == ["0.50 (0.50 to 0.50)", "2.00 (2.00 to 2.00)"]
    assert found["Holdfast ahead of Kafka, without TLS"] == [
        "2.00 (2.00 to 3.00)", "2.00 (2.00 to 2.00)", "2.00 (2.00 to 2.00)", "2.00 (0.00 to 2.00)",
    ]  # fmt: skip
    assert found["Holdfast ahead of Kafka, with TLS"][1] == "2.00 (2.00 to 2.00)"


def test_without_a_peer_there_are_only_own_ratios() -> None:
    own = {key: each[:1] for key, each in MEASURED.rounds.items() if key[0] == OURS}
    found = {name: cells for name, *cells in rows(TlsReport("Alone.", own))}

    assert list(found) == ["Holdfast, without TLS", "Holdfast, with TLS", "Holdfast: with TLS to without"]
    assert found["Holdfast, with TLS"] == ["50", "2.00", "100", "1.00"]
    assert found["Holdfast: with TLS to without"] == ["0.50", "2.00", "0.50", "2.00"]


def test_kernel_tls_has_rows_of_its_own_where_it_was_measured() -> None:
    own = {key: each[:1] for key, each in MEASURED.rounds.items() if key[0] == OURS}
    found = {
        name: cells
        for name, *cells in rows(TlsReport("Alone.", {**own, (OURS, KERNEL): [Rates(60, 150, 2.0, 0.5)]}))
    }

    assert found["Holdfast, with kernel TLS"] == ["60", "2.00", "150", "0.50"]
    assert found["Holdfast: kernel TLS to OpenSSL's"] == ["1.20", "1.00", "1.50", "0.50"]


def test_no_processor_time_makes_no_ratio() -> None:
    none = {key: [Rates(1, 1, 0.0, 0.0)] for key in MEASURED.rounds}
    found = {name: cells for name, *cells in rows(TlsReport("Short.", none))}

    assert found["Holdfast ahead of Kafka, with TLS"] == ["1.00", "", "1.00", ""]


def test_the_section_replaces_what_is_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "security.md"
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    insert(page, page_section(MEASURED))
    text = page.read_text()

    assert text.startswith(f"before\n{BEGIN}\n\nSomewhere.\n") and text.endswith(f"{END}\nafter\n")
    assert "stale" not in text and "| Kafka, with TLS | 28 (25 to 30) |" in text
    insert(page, page_section(MEASURED))
    assert page.read_text() == text


def test_the_line_of_json_has_each_round() -> None:
    assert as_json(MEASURED)["Kafka SSL"][1] == {
        "produced": 30, "consumed": 55, "produce_cpu": 4.0, "consume_cpu": 2.0,
    }  # fmt: skip
