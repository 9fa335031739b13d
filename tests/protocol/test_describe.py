"""docs/protocol.md says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.describe import protocol_page
from holdfast_log.protocol.kafka_apis import KAFKA_3, KAFKA_4

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == protocol_page(), (
        "run python -m holdfast_log.protocol.describe > docs/protocol.md"
    )


def test_every_api_has_one_row() -> None:
    rows = [line for line in protocol_page().splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert sorted(int(row.split("|")[1]) for row in rows) == sorted({*APIS, *KAFKA_3, *KAFKA_4})
    assert "| 0 | Produce | 0-12 | 0-12 | 9-12 | 0-11 | 0-13 |" in rows
    assert "| 17 | SaslHandshake | 0-1 | 0-1 | none | 0-1 | 0-1 |" in rows
    assert "| 4 | LeaderAndIsr | 5-7 | none | 5-7 | 0-7 | none |" in rows
