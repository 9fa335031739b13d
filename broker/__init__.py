"""The server: network, log, replication, ownership and handlers, connected in `wiring/`.

ZooKeeper access, the controller and the rules of consumer groups are in `coordinator`.
Clients never import from here.
"""
