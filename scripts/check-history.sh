#!/usr/bin/env bash
# Drive a cluster under faults, record what every client was answered, and check the history. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
run_python -m holdfast_log.checker.check_history "$@"
