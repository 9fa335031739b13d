#!/usr/bin/env bash
# Elect leaders: the preferred replica, or any live replica if none in sync is left. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.leader_election "$@"
