"""Client quotas (Kafka design §4.9): limits of bytes, reactor time, changes to topics, and new connections.

Here belongs what finds a client's limit, measures its use and computes its delay, and what describes and
alters limits. The delay itself is the connection's (`ServerConnection.mute`). The throttle of replication
(KIP-73) belongs to `broker.replication`.
"""
