"""The controller: decides who leads each partition, writes that to ZooKeeper, and tells the brokers.

`machine` decides without input or output; `service` performs what it decides. How a broker becomes the
controller does not belong here: that is `coordinator.cluster.candidacy`.
"""
