"""The sending side of a producer: queues of batches for each partition, and the loop that sends them.

Fetching is in `clients.fetching`, connections in `clients.connection`.
"""
