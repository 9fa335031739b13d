#!/usr/bin/env bash
# Run clients against restarting brokers for an hour; check that no record is lost and no resource grows. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.soak.soak "$@"
