"""What the broker does for every request: dispatch, context, quotas, features, audit, requests to peers.

One API's own behaviour is in `handlers/`; bytes and connections are in `network/`.
"""
