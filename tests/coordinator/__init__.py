"""Tests of coordinator, without other processes."""
