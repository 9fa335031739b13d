"""Listeners, transport and connections: ordered requests and responses on sockets, with back-pressure.

Nothing here depends on the meaning of a request; handlers implement that.
"""
