"""Connects the group coordinator to this broker: its shards of `__consumer_offsets`, the creation of that
topic, and readers' claims at partition leaders.

The rules of groups are in `coordinator.groups`, the request handlers in `broker.handlers`.
"""
