"""From a request to its response: sockets, TLS, what is said on one connection, metadata, and the
`Connection` that sends any request to any broker.

Nothing here knows what producers, consumers or groups want.
"""
