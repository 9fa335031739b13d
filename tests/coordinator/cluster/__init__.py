"""Tests of `coordinator.cluster`."""
