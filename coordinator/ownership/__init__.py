"""Ownership records in ZooKeeper, and the store that reads and writes them.

`broker.ownership` decides who may own what.
"""
