"""Producer, consumer and admin: what an application imports to talk to a cluster.

Standard library sockets only: no Twisted, no ZooKeeper, nothing of the broker. Importing it is quick.
"""
