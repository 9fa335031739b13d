# shellcheck shell=bash
# Common functions of all scripts: find the checkout, its Python, its Java. Source this file, do not run it.
#
#   . "$(dirname "${BASH_SOURCE[0]}")/common.sh"
#   run_python -m holdfast_log.clients.tools.topics "$@"
#
# HOLDFAST_VENV   the virtual environment to use (default: .venv in the checkout)

set -euo pipefail

HOLDFAST_HOME=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export HOLDFAST_HOME

HOLDFAST_MODULES=(twisted kazoo snappy cramjam javaproperties click rich)

# End the script with a message and status 1.
fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Print the directory of the virtual environment: install.sh creates it, and every script tries it first.
venv_directory() {
    printf '%s\n' "${HOLDFAST_VENV:-$HOLDFAST_HOME/.venv}"
}

# Succeed if this interpreter has the packages that Holdfast imports.
has_dependencies() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' \
        "${HOLDFAST_MODULES[@]}" 2>/dev/null
}

# Print the interpreter to use: the environment's, or the active one if it has the packages.
find_python() {
    local venv active
    venv=$(venv_directory)
    if [[ -x $venv/bin/python ]] && has_dependencies "$venv/bin/python"; then
        printf '%s\n' "$venv/bin/python"
        return
    fi
    [[ -z ${HOLDFAST_VENV:-} ]] || fail "Holdfast is not installed in $venv (HOLDFAST_VENV). Run scripts/install.sh first."
    active=$(command -v python3 || true)
    if [[ -n $active ]] && has_dependencies "$active"; then
        printf '%s\n' "$active"
        return
    fi
    fail "Holdfast is not installed yet. Run scripts/install.sh first."
}

# Print the major version of the Java at $1, or 0.
java_major() {
    local version
    version=$("$1" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1) || true
    version=${version%%[!0-9]*}
    printf '%s\n' "${version:-0}"
}

# Print the home of a Java for Spark and ZooKeeper (17 or later), or fail. An empty line means the java on PATH.
find_java_home() {
    local own
    if [[ -n ${JAVA_HOME:-} && -x $JAVA_HOME/bin/java && $(java_major "$JAVA_HOME/bin/java") -ge 17 ]]; then
        printf '%s\n' "$JAVA_HOME"
        return
    fi
    if command -v java >/dev/null && [[ $(java_major java) -ge 17 ]]; then
        printf '\n'
        return
    fi
    own=$(venv_directory)/java
    [[ -x $own/bin/java ]] || return 1
    printf '%s\n' "$own"
}

# For scripts that start ZooKeeper or Spark: set JAVA_HOME and PATH, or end the script with advice.
use_java() {
    local home
    home=$(find_java_home) || fail "no Java 17 or later was found. Run scripts/install.sh, which installs one."
    if [[ -n $home ]]; then
        export JAVA_HOME=$home PATH=$home/bin:$PATH
    else
        unset JAVA_HOME
    fi
}

# Replace the script's process by Python: run_python -m module arguments…
# -P keeps the caller's directory off the import path, where a folder named clients could hide Holdfast's.
run_python() {
    local python
    python=$(find_python)
    export PYTHONPATH=$HOLDFAST_HOME${PYTHONPATH:+:$PYTHONPATH}
    export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$python}
    exec "$python" -P "$@"
}
