#!/usr/bin/env bash
# Delete the oldest records of partitions. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.delete_records "$@"
