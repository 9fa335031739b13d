#!/usr/bin/env bash
# Bring Apache Kafka from Maven Central, measure Holdfast beside it, and write docs/benchmarks.md. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'END'
Usage: scripts/benchmark-kafka.sh [options of python -m benchmarks.peers]

Measures Holdfast beside Apache Kafka 3.9 (with ZooKeeper) and 4.1 (KRaft), and its clients beside confluent-kafka,
in about 40 minutes. Writes the table and the plots to docs/benchmarks.md and docs/benchmarks/. Nothing else should
run on the machine meanwhile.

  --quick           everything once, in some minutes; prints the tables and writes nothing
  --only TEXT       only rows whose name contains TEXT; prints the tables and writes nothing
  --list            print the names of the rows
  --system NAME     only these systems: holdfast, holdfast-all-cores, kafka-3.9, kafka-4.1

Maven brings the jars, and fails on a download whose checksum is not the repository's; the sum of all jars must be
the one in benchmarks/apache_kafka.py. It needs Maven, Java 17 or later, a C compiler for the load generator, and what
scripts/install.sh --with-tests installs.
END
    exit 0
fi

use_java
command -v mvn >/dev/null || fail "mvn was not found. On Debian: apt-get install maven"
cd "$HOLDFAST_HOME"
writes=(--docs docs)
for argument in "$@"; do
    case $argument in
        --quick | --only | --only=* | --list | --from | --from=* | --docs | --docs=*) writes=() ;;
    esac
done
run_python -m benchmarks.peers "${writes[@]}" "$@"
