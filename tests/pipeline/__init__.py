"""Tests of pipeline, without other processes."""
