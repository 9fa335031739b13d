"""The producer's inside: from `send` to the response. Queues of batches for each partition, and the thread
that sends them.
"""
