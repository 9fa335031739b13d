"""Requests and responses on sockets: TLS, the protocol on one connection, metadata, and the `Connection` that
sends any request to any broker.

Nothing here depends on producers, consumers or groups.
"""
