#!/usr/bin/env bash
# Drive a cluster under faults, record what every client was answered, and check the history. See --help.
# With --planted-bugs as the first argument: put known bugs back in the brokers, and see that each is found.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
if [[ ${1:-} == --planted-bugs ]]; then
    cd "$HOLDFAST_HOME"
    run_python -m tests.checker.drill "${@:2}"
else
    run_python -m holdfast_log.checker.check_history "$@"
fi
