"""Connects the group coordinator to this broker: which shards of `__consumer_offsets` it serves, the topic's
creation, and readers' claims at partition leaders.

The rules of groups are in `coordinator.groups`, the request handlers in `broker.handlers`.
"""
