"""Bytes between sockets and requests: listeners, transport, connections in order and under back-pressure.

Nothing here knows what a request means.
"""
