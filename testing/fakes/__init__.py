"""The parts of `FakeCluster`: brokers in memory that run the broker's own machines on a clock of their own.

    fake_cluster       the brokers, the topics, and the clock
    fake_broker        a broker and the connections to it
    fake_partition     a partition's log
    for_users          what users of FakeCluster call: clients, failures, time
    fake_topics        creating and deleting topics
    fake_groups, fake_ownership, fake_readers, fake_conditions     what else the brokers decide
    fake_transactions  the coordinator of transactions
    handlers           the broker's own handlers, with parts that a test provides
    table_host, shard_host      performers of the effects of ownership tables and of group shards

Only what `holdfast_log.testing` exports is public; the rest may change between versions.
"""
