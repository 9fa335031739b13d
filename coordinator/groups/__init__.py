"""Consumer groups: members, generations, assignments and committed offsets, in one shard for each partition
of `__consumer_offsets`.

A shard serves two protocols: Kafka's classic one (`classic_requests`) and the client rewrite's
(`managed_requests`). What concerns a group of any protocol goes through `kinds.GroupKind`, one for each. The
network handlers are in `broker/handlers`.
"""
