#!/usr/bin/env bash
# Attack a cluster of this machine as one client without a right can, and say what happened. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.hostile.walk "$@"
