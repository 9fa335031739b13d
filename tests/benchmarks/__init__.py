"""Tests of benchmarks: that they count right, not how fast anything is."""
