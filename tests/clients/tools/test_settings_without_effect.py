"""The scripts warn of settings that the broker accepts without effect."""

from __future__ import annotations

import pytest

from clients.tools.configs import warn_without_effect


def test_only_settings_without_effect_are_named_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn_without_effect(["min.compaction.lag.ms", "max.message.bytes", "delete.retention.ms"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(
        "WARNING: delete.retention.ms, min.compaction.lag.ms is accepted but has no effect"
    )


def test_settings_with_an_effect_are_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    warn_without_effect(["max.message.bytes", "retention.ms", "retention.bytes"])
    assert capsys.readouterr().err == ""
