"""The transaction coordinator: who writes under a transactional id, and how each transaction ends (KIP-98).

One shard, a pure machine, keeps the transactional ids of one partition of `__transaction_state`;
`coordinator.shards` runs it. The network handlers are in `broker/handlers`, what sends markers to the leaders
of partitions in `broker/transactions`.
"""
