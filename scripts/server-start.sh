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
logs=${LOG_DIR:-$HOLDFAST_HOME/var/log}
mkdir -p "$logs"
ready=$(mktemp -u "${TMPDIR:-/tmp}/holdfast-ready.XXXXXX")
printed=$(mktemp "${TMPDIR:-/tmp}/holdfast-printed.XXXXXX")
trap 'rm -f "$ready" "$printed"' EXIT
nohup "${BASH_SOURCE[0]}" "$@" --ready-file "$ready" --log-dir "$logs" >"$printed" 2>&1 </dev/null &
broker=$!
# The path of the broker's log, printed before anything else once the broker knows its id.
log_path() { sed -n "s/^The log of process $broker is //p" "$printed"; }

while [[ ! -s $ready ]]; do
    if ! kill -0 "$broker" 2>/dev/null; then
        log=$(log_path)
        if [[ -z $log ]]; then
            tail -n 3 "$printed" >&2
            fail "the broker did not start"
        fi
        tail -n 3 "${log%.log}.out" >&2
        fail "the broker did not start; its log is $log"
    fi
    sleep 0.1
done
printf 'The broker has started (process %s). Its log is %s\n' "$broker" "$(log_path)"
