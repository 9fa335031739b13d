"""A whole cluster in one process, on a simulated clock, network, disk and ZooKeeper, driven from one seed.

The broker code is the real one, wired by the real composition root. The world, disk, network and ZooKeeper
below it are models with faults, in `tests/models`. From the bottom up:

cluster     machines, on which brokers live one life after the other
client      producer, consumer, operator: clients that speak the protocol; history: the answers they got
member      classic and managed members of groups; group_life: how they come and go; group_history
owner       clients that contend for a partition; tenant_life: how they come and go; owner_history
plan        what a seed draws: topics, habits, sizes, the faults and their times
parts       the parts of a plan by name, and plans without some of them
faults      what goes wrong
checkers    the judges, who know the history and read the files on the disks
scenario    one seed's story; campaign: many of them
shrink      the smallest part of a failing seed's plan that still fails; account: that in plain words
mutations   known bugs put back into the real code: mutants has one file for each package of it

`scripts/simulate.sh --help` runs campaigns, replays a seed with its trace, and puts bugs back.
"""
