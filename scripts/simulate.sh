#!/usr/bin/env bash
# Simulate minutes of a cluster under faults, each drawn from a seed, and check the results. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.sim.campaign "$@"
