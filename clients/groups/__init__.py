"""A consumer's part in a group: finding the coordinator, membership, assignment, committed offsets.

Everything here is sans-IO: machines take replies, and return calls to send and events for the consumer with
the partitions to revoke and to read. Fetching is in `clients.fetching`.
"""
