"""Tests of `coordinator.zookeeper`."""
