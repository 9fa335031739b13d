# The compiled functions have the signatures and results of those in Python.
from holdfast_log.protocol.compaction_loops import add_batch_keys as add_batch_keys
from holdfast_log.protocol.compaction_loops import add_keys as add_keys
from holdfast_log.protocol.compaction_loops import filter_batches as filter_batches
from holdfast_log.protocol.compaction_loops import filter_records as filter_records
