"""Tests of broker/replication, without other processes."""
