"""Scenarios against real broker processes and a real ZooKeeper."""
