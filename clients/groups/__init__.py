"""A consumer's part in a group: finding the coordinator, membership, assignment, committed offsets.

All of it is sans-IO, as the fetcher is: requests go out as calls, replies come in, and what the consumer has
to do about its partitions comes out as events.
"""
