#!/usr/bin/env bash
# Have clients come and go for an hour while brokers restart; no record is lost, and no resource grows. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.soak.soak "$@"
