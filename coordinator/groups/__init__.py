"""Consumer groups: members, generations, assignments and committed offsets, decided for one partition of
`__consumer_offsets` at a time.

Two protocols meet in one shard: Kafka's classic one (`classic_door`) and the client rewrite's
(`managed_door`). What carries requests here over the network is the broker's.
"""
