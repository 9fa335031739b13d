"""Programs that move whole topics between Holdfast and files, run by scripts/pipeline.sh.

Here belong jobs that end: each takes what is there, moves it exactly once, and reports. What a job has moved
is kept in a ledger, in the same atomic step as its output (Kafka design §4.6). Sources and sinks that Spark
calls itself belong in the folder above; servers and brokers do not belong here.
"""
