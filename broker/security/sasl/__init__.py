"""The server's side of SASL: the states of an authentication, the mechanisms, and the users that they know.

Messages and the caller's side are in `protocol.sasl`. Only `gates.py` touches connections.
"""
