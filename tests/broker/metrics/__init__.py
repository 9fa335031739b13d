"""Tests of `broker.metrics`."""
