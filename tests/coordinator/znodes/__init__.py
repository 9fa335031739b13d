"""Tests of `coordinator.znodes`."""
