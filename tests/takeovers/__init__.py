"""Owners that are stopped and woken late, by the hundred: nothing they write then may get into the log."""
