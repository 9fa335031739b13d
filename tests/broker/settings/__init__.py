"""Tests of `broker.settings`."""
