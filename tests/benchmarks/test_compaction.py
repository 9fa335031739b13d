"""The benchmark of compaction runs and tells what remains."""

from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks.compaction import main


def test_it_compacts_a_small_log_and_ends_with_a_line_of_json() -> None:
    result = CliRunner().invoke(main, ["--megabytes", "1", "--keys", "50", "--codec", "zstd"])

    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.output.splitlines()[-1])
    assert row["passes"] == 1 and 0 < row["bytes_after"] < row["bytes_before"] / 4
