#!/usr/bin/env bash
# Kill the load job of scripts/pipeline.sh at random moments, and compare its table with the topic. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.pipeline.jobs.kills "$@"
