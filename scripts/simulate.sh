#!/usr/bin/env bash
# Simulated minutes of a cluster under faults, each drawn from a seed, and judged. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$HOLDFAST_HOME"
run_python -m tests.sim.campaign "$@"
