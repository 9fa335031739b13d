"""The server: network, log, replication, ownership, handlers, wired together in app.py.

Everything that runs on the reactor thread lives here. Clients never import from here.
"""
