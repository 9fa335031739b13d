#!/usr/bin/env bash
# List and describe transactions and producers; find and abort hanging transactions. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.transactions "$@"
