#!/usr/bin/env bash
# The Python of the Spark of tests and drills. Spark has no setting for the daemon from which it forks the workers of plans
# and commits: this script starts tests/pipeline/sink/warm_daemon.py in its place.
if [[ ${1:-} == -m && ${2:-} == pyspark.daemon ]]; then
    shift 2
    set -- -m tests.pipeline.sink.warm_daemon "$@"
fi
exec "${WARM_PYTHON:?tests.pipeline.local_session sets it}" "$@"
