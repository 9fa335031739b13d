#!/usr/bin/env bash
# Run our clients at a broker that lies to them, and say what each of them did. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.hostile.client_walk "$@"
