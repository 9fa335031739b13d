"""Producer, consumer and admin client, their settings, messages and errors: the code that applications run.

Uses sockets of the standard library only. Nothing here imports Twisted, ZooKeeper or the broker.
"""
