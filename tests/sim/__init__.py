"""A whole cluster in one process, on a simulated clock, network, disk and ZooKeeper, driven from one seed.

The broker code is the real one, wired by the real composition root. The world, disk, network and ZooKeeper
below it are models with faults, in `tests/models`. From the bottom up:

cluster     machines, each running one broker process after another
client      clients that speak the protocol: producer, consumer, operator; history: the answers they got
member      classic and managed group members; group_life: how they come and go; group_history: answers
owner       clients that contend for a partition; tenant_life: how they come and go; owner_history: answers
transactor  transactional producers; transaction_life: how they come and go; committed_reader: who reads what
            they commit; transaction_history: answers
plan        what a seed has drawn: topics, client habits, sizes, the faults and their times
drawing     draws it; drawn_workload: the topics and clients; drawn_faults: the faults
parts       the parts of a plan by name, and plans without some of them
quota_setter changes the quotas of clients; quota_judge: who is delayed, how long, and what gets through
faults      the faults that a plan can contain; long_faults: those of many steps
checkers    judges that compare the clients' history with the files on the disks
scenario    the run of one seed; campaign: the runs of many seeds; recovery_times, recovery_record: how long
            clusters took to recover, compared with the run before
shrink      finds the smallest part of a failing seed's plan that still fails; account: describes a failure
mutations   known bugs put back into the real code; mutants: one file for each package mutated

`scripts/simulate.sh --help` runs campaigns, replays a seed with its trace, and puts bugs back.
"""
