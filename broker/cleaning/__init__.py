"""Log compaction: keeps the last record of each key, and removes earlier ones (Kafka design §4.8).

`plan` says which part of a log a pass takes, and `turns` which log is next. `offset_map` and `mapping` find
the last record of each key, `copying` writes what remains of segments into new ones, and `cleaner` runs all
that in worker threads and swaps the segments.

What remains of a batch is decided in `protocol.compaction`. Files, recovery and the swap itself are in
`broker.log`; removing whole segments by age and size is in `broker.log.retention`.
"""
