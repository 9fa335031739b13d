"""Tests of `broker.process`."""
