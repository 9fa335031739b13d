"""Tests of `coordinator.transactions`."""
