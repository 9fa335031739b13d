"""Tests of `broker.security`."""
