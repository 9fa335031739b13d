"""A whole cluster in one process, on a simulated clock, network, disk and ZooKeeper, driven from one seed.

The broker code is the real one, wired by the real composition root; what it stands on is modelled here, with
faults. From the ground up:

world       time, chance, processes that die and pause, the trace and its hash
disk, network, zookeeper    the models; the last is held against the real server by its contract test
cluster     machines, on which brokers live one life after the other
client      producer, consumer, operator: clients that speak the protocol; history: what they were told
member      classic and managed members of groups; group_life: how they come and go; group_history
owner       those who want to be the one writer of a partition; owner_life, owner_history
plan        what a seed draws: topics, habits, which faults and changes there may be
faults      what goes wrong in a minute
checkers    the judges, who know the history and read the files on the disks
scenario    one seed's story; campaign: many of them
mutations   known bugs put back, by the room of the code that they are in: mutants

`scripts/simulate.sh --help` runs campaigns, replays a seed with its trace, and puts bugs back.
"""
