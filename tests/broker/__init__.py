"""Tests of broker, without other processes."""
