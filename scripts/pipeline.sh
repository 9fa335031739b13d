#!/usr/bin/env bash
# Move whole topics between Holdfast and files, exactly once, by Spark. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
case ${1:-} in "" | -h | --help) ;; *) use_java ;; esac
run_python -m holdfast_log.pipeline.jobs "$@"
