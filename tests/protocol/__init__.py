"""Tests of protocol, without other processes."""
