"""What brokers agree on: ZooKeeper, membership, the controller and its elections, consumer groups.

Decisions are pure machines (events in, effects out); one thin service beside each performs the effects.
Only `zookeeper/kazoo_session.py` knows kazoo. No sockets, no log files: both come in through constructor
arguments.
"""
