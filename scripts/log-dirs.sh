#!/usr/bin/env bash
# Show what is in the brokers' log directories. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.log_dirs "$@"
