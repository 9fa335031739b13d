"""From a request to its response: sockets, TLS, the protocol on one connection, metadata, and the
`Connection` that sends any request to any broker.

Nothing here depends on producers, consumers or groups.
"""
