#!/usr/bin/env bash
# Start a broker:  server-start.sh [-daemon] config/server.properties [--override key=value]...
# With -daemon it goes to the background; what it prints is then in $LOG_DIR/server.out (default: var/log/).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [[ ${1:-} == -daemon ]]; then
    shift
    logs=${LOG_DIR:-$HOLDFAST_HOME/var/log}
    mkdir -p "$logs"
    nohup "${BASH_SOURCE[0]}" "$@" >"$logs/server.out" 2>&1 </dev/null &
    exit
fi
run_python -m broker "$@"
