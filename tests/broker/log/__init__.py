"""Tests of broker/log, without other processes."""
