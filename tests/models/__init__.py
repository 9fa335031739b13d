"""Models of what the code under test uses: each thing is modelled once, for the tests of every package.

This package holds doubles of things outside the code under test (time, processes, disks, networks, ZooKeeper,
worker threads, whole brokers), makers of data, and performers of a machine's effects. A model's docstring
names what it models and the test that compares it with the real thing; its own tests are in this folder.
Drivers of one package's scenarios (`tests/broker/world.py`, `tests/sim/cluster.py`) do not belong here, and
no module here imports a test.

world              time, randomness, processes that die and pause, the trace and its hash
disk, network, zookeeper    models with faults, for the simulation
instant_zookeeper  the same ZooKeeper, answering at once
workers            worker threads: at once, on demand, in simulated time
wires              the broker's network as a recorder of calls; the test plays the peer
cuttable           a client's real network, which a test can cut
batches, logs      record batches; real logs on simulated disks
ownership_requests     the own API's requests of one owner

Brokers in memory for clients under test are in holdfast_log/testing/fakes: applications use them too.
"""
