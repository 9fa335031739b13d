"""Tests of `coordinator.controller`."""
