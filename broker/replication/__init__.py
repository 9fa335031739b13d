"""The replicas of this broker: roles, fetching from leaders, in-sync sets, high watermarks, and the produce
and fetch requests that wait for them.

Files of a partition are in `broker.log`; elections are in `coordinator.controller`.
"""
