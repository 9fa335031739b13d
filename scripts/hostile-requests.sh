#!/usr/bin/env bash
# Send the costliest requests of every API and version to a broker, and report what they cost. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.hostile.campaign "$@"
