#!/usr/bin/env bash
# Start a broker:  server-start.sh [-daemon] config/server.properties [--override key=value]...
# With -daemon the broker runs in the background, and this script ends when it serves. The broker's log is then in
# $LOG_DIR/server-ID.log (default: var/log/), with ID the broker's. What Python itself prints is in server-ID.out beside
# it. Both are rotated (docs/operating.md).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [[ ${1:-} != -daemon ]]; then
    run_python -m holdfast_log.broker "$@"
fi

shift
export LOG_DIR=${LOG_DIR:-$HOLDFAST_HOME/var/log}
run_python -m holdfast_log.command.main server --daemon --config "$@"
