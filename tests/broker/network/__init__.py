"""Tests of broker/network, without other processes."""
