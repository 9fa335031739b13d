#!/usr/bin/env bash
# Print what is in the files of a log: batches, records, indexes, producers, epochs. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.broker.tools.dump_log "$@"
