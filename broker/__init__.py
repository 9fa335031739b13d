"""The server: network, log, replication, ownership, handlers, wired together in `wiring/`.

Everything that runs on the reactor thread lives here. Clients never import from here.
"""
