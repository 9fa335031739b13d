#!/usr/bin/env bash
# Check the specification of the ownership protocol (docs/spec) with the model checker TLC. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.spec.check "$@"
