#!/usr/bin/env bash
# Stop the broker that was started from a properties file (default: config/server.properties), and wait until it has
# stopped:
#   server-stop.sh [config/server.properties] [--override log.dirs=...]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[[ $# -gt 0 ]] || set -- "$HOLDFAST_HOME/config/server.properties"
run_python -m holdfast_log.broker.tools.server_stop "$@"
