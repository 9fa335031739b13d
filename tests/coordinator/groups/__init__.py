"""Tests of `coordinator.groups`."""
