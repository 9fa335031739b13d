#!/usr/bin/env bash
# Add, remove and list access control lists. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.acls "$@"
