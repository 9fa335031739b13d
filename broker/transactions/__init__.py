"""Connects the transaction coordinator to this broker: its shards of `__transaction_state`, the markers that
it has the leaders of partitions write, and the questions of leaders whether a transaction has a partition.

The rules of transactions are in `coordinator.transactions`, the request handlers in `broker.handlers`.
"""
