#!/usr/bin/env bash
# List, describe and delete consumer groups; show lag; reset or delete offsets. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.consumer_groups "$@"
