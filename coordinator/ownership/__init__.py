"""What is written in ZooKeeper about owners: the records, and the store that replaces exactly what was read.

Who may own what is decided in `broker.ownership`.
"""
