"""Tests of `coordinator.ownership`."""
