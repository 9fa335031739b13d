#!/usr/bin/env bash
# Put known bugs into the compiled code, one at a time, and see that tests fail with each. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.mutated_c.hunting "$@"
