"""The benchmark of whole brokers' cleaners runs, and reads what each program logs of a compaction."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.cleaners import Pass, main, passes_of_holdfast, passes_of_kafka

KAFKAS_LOG = """\
2026-01-02 03:04:05,678 INFO [kafka-log-cleaner-thread-0]:
	Log cleaner thread 0 cleaned log other-0 (dirty section = [0, 7])
	1.0 MB of log processed in 0.1 seconds (10.0 MB/sec).
2026-01-02 03:04:06,789 INFO [kafka-log-cleaner-thread-0]:
	Log cleaner thread 0 cleaned log compacted-0 (dirty section = [0, 1875000])
	1,788.1 MB of log processed in 1,014.2 seconds (1.8 MB/sec).
	Indexed 1,788.1 MB in 5.6 seconds (319.9 Mb/sec, 39.6% of total time)
"""


def test_each_programs_own_time_of_a_compaction_is_found_in_its_log() -> None:
    ours = "INFO Compacted compacted-0 up to offset 94992 in 313 ms: 43887459 bytes were 99822800 before\n"
    assert passes_of_holdfast(f"INFO Compacted other-0 up to offset 1 in 2 ms\n{ours}") == [
        Pass(0.313, 94992)
    ]
    assert passes_of_kafka(KAFKAS_LOG) == [Pass(1014.2, 1_875_000)]


def test_it_compacts_a_log_in_a_broker_alone_and_beside_requests(tmp_path: Path) -> None:
    arguments = ["--alone", "--megabytes", "4", "--keys", "100", "--quiet-seconds", "1"]
    result = CliRunner().invoke(main, [*arguments, "--directory", str(tmp_path)])

    assert result.exit_code == 0, result.output
    report = json.loads(result.output.splitlines()[-1])
    (cleaning,) = report["cleanings"]
    assert 0 < cleaning["bytes_after"] < cleaning["bytes_before"] / 4
    assert [each["request"] for each in report["requests"]] == ["produce", "fetch"]
    assert not list(tmp_path.iterdir())
