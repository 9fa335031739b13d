"""Coordination of brokers: ZooKeeper, membership, the controller and its elections, consumer groups.

Pure machines decide (events in, effects out); a thin service beside each performs the effects. Only
`zookeeper/kazoo_session.py` imports kazoo. Network and log files come in through constructor arguments.
"""
