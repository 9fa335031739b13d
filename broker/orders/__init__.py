"""Carries out the controller's requests on this broker: LeaderAndIsr, StopReplica, UpdateMetadata, strays.

The controller itself is in `coordinator.controller`; a replica's change of role is in `broker.replication`.
"""
