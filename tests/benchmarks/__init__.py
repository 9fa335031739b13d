"""Tests of the benchmarks' arithmetic, not of any speed."""
