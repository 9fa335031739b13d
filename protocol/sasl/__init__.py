"""SASL's bytes, for both sides: the messages of SCRAM, PLAIN and OAUTHBEARER, each caller's side, and JAAS.

Nothing here has a socket or a clock. The server's side is in `broker.security.sasl`, credentials included.
"""
