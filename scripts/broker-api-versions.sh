#!/usr/bin/env bash
# Show which requests each broker accepts. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.broker_api_versions "$@"
