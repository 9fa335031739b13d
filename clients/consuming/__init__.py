"""What drives a consumer: its event loop, the heartbeat thread, and its counts.

Positions, fetches and records are in `fetching/`, membership in a group is in `groups/`.
"""
