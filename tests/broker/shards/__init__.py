"""Tests of broker/shards."""
