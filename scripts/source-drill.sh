#!/usr/bin/env bash
# Read a topic by Spark while tasks, workers and brokers die, and check each record: delivered once. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.pipeline.source_drill "$@"
