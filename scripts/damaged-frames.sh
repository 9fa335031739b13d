#!/usr/bin/env bash
# Send damaged requests of all APIs to a broker of its own, and check that it harms nobody. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.integration.test_damaged_frames "$@"
