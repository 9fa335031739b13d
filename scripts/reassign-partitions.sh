#!/usr/bin/env bash
# Move partitions to other brokers. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.reassign_partitions "$@"
