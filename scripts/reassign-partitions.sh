#!/usr/bin/env bash
# Move partitions to other brokers. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m clients.tools.reassign_partitions "$@"
