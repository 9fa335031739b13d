"""The controller: decides who leads each partition, writes that to ZooKeeper, and tells the brokers.

`machine` decides, without I/O; `runtime` performs its decisions during one term; `service` starts a runtime
at each election and takes requests. The election itself is in `coordinator.cluster.candidacy`.
"""
