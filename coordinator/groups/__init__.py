"""Consumer groups: members, generations, assignments and committed offsets, in one shard for each partition
of `__consumer_offsets`.

A shard serves three protocols: Kafka's classic one (`classic_requests`), the client rewrite's
(`managed_requests`) and that of KIP-848 (`consumer_requests`). What concerns a group of any protocol goes
through `kinds.GroupKind`, one for each. A group changes between Kafka's two while its members read
(`migration`). The network handlers are in `broker/handlers`.
"""
