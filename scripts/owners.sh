#!/usr/bin/env bash
# Show who owns partitions and other resources, or release them by force. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.owners "$@"
