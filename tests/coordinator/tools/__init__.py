"""Tests of the tools around ZooKeeper."""
