"""The way to ZooKeeper: the interface that everything else is written against, and its real side on kazoo.

Belongs here: sessions, requests, watches, the handover between threads. What stands in znodes does not: that
is `coordinator.znodes`.
"""
