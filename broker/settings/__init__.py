"""The settings of brokers and topics: declared as rows, read from files, altered through ZooKeeper while the
broker runs.

What a setting makes a room do belongs to that room.
"""
