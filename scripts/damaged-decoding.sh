#!/usr/bin/env bash
# Have every decoder read damaged messages and batches, compiled and in Python, and compare. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.protocol.damaged_decoding "$@"
