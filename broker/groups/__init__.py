"""Consumer groups on this broker: the coordinator's shards, on the partitions of `__consumer_offsets`."""
