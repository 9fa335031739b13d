#!/usr/bin/env bash
# Show the offsets of partitions. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.get_offsets "$@"
