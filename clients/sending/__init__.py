"""From `send` to its response: queues of batches for each partition, and the loop that sends them."""
