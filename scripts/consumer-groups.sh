#!/usr/bin/env bash
# Consumer groups: members, lag, offsets to reset or delete. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m clients.tools.consumer_groups "$@"
