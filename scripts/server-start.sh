#!/usr/bin/env bash
# Start a broker:  server-start.sh [-daemon] config/server.properties [--override key=value]...
# With -daemon the broker runs in the background, and this script ends when it serves. The broker's log is then in
# $LOG_DIR/server-ID.log (default: var/log/), with ID the broker's, and is rotated (docs/operating.md). What Python
# itself prints is appended to $LOG_DIR/server.out.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
if [[ ${1:-} != -daemon ]]; then
    run_python -m broker "$@"
fi

shift
logs=${LOG_DIR:-$HOLDFAST_HOME/var/log}
mkdir -p "$logs"
ready=$(mktemp -u "${TMPDIR:-/tmp}/holdfast-ready.XXXXXX")
trap 'rm -f "$ready"' EXIT
nohup "${BASH_SOURCE[0]}" "$@" --ready-file "$ready" --log-dir "$logs" >>"$logs/server.out" 2>&1 </dev/null &
broker=$!
while [[ ! -s $ready ]]; do
    if ! kill -0 "$broker" 2>/dev/null; then
        tail -n 3 "$logs/server.out" >&2
        fail "the broker did not start; its output is in $logs/server.out"
    fi
    sleep 0.1
done
log=$(sed -n "s/^The log of process $broker is //p" "$logs/server.out" | tail -n 1)
printf 'The broker has started (process %s). Its log is %s\n' "$broker" "$log"
