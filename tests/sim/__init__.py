"""A whole cluster in one process, on a simulated clock, network, disk and ZooKeeper, driven from one seed.

The broker code is the real one; what it stands on is modelled here, with faults. Checkers stand outside.
"""
