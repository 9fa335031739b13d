"""docs/compatibility.md, generated from what the tests run: python -m tests.compat.compatibility > PAGE

The page has the versions with which the tests ran on the machine that generated it. tests/test_site.py checks
that the rest follows from the tests and from setup.cfg, and that these versions are allowed there.
"""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.apache_kafka import KRAFT_VERSION, VERSION

HOME = Path(__file__).parents[2]
PAGE = HOME / "docs" / "compatibility.md"
MISSING = "not there on that machine"
SUITES = ("compat", "pipeline")
"""The folders of tests that run software of others."""

INTRODUCTION = """\
# Compatibility

What was run with Holdfast, by which tests. `python -m tests.compat.compatibility` generates this page
from the tests themselves and from the versions that `setup.cfg` and `scripts/test.sh` demand; a test
compares. *Ran with* is the version on the machine that last generated the page. Newer ones may work: each
run of the tests shows whether they do.
"""


@dataclass(frozen=True, slots=True)
class Software:
    """Something that the tests run. `package` is its Python package, `needle` what its tests contain."""

    name: str
    package: str
    needle: str
    demanded: str = ""
    version: str = ""


SOFTWARE = (
    Software("confluent-kafka (librdkafka)", "confluent-kafka", r"CONFLUENT|confluent"),
    Software("kafka-python 3", "kafka-python", r"KAFKA_PYTHON_3|drivers.kafka_python|KafkaPythonReader"),
    Software("kafka-python 2", "", r"KAFKA_PYTHON_2|OLD_KAFKA_PYTHON", demanded="scripts/test.sh"),
    Software("aiokafka", "aiokafka", r"AIOKAFKA|aiokafka"),
    Software("kcat", "", r"KCAT\b", demanded="any"),
    Software("Spark with its own Kafka connector", "pyspark", r"spark_connector"),
    Software(
        f"Apache Kafka's broker {VERSION} (ZooKeeper)", "", r"KafkaBroker\b|class_path\(\)", "this", VERSION
    ),
    Software(f"Apache Kafka's broker {KRAFT_VERSION} (KRaft)", "", r"KraftBroker", "this", KRAFT_VERSION),
    Software(
        f"Apache Kafka's command-line tools {VERSION}", "",
        r"config_command|acl_command|dump\(|kafka_tools|run_tool", "this", VERSION,
    ),
    Software(
        "Apache Kafka's Java clients", "",
        r'driver_or_skip\(tmp_path, "(?!WordCount)', "this", VERSION,
    ),
    Software("Kafka Streams (exactly_once_v2)", "", r'"WordCount"', "this", VERSION),
    Software("Kafka Connect (exactly-once source)", "", r"ConnectDistributed", "this", VERSION),
    Software("franz-go", "", r"go_transactions", "this", "1.18.0"),
    Software("sarama", "", r"go_transactions", "this", "1.43.3"),
    Software("librdkafka's mock brokers (our clients)", "confluent-kafka", r"test\.mock\.num\.brokers|mock"),
    Software("kio (every message, byte for byte)", "kio", r"import kio|from kio"),
    Software("Prometheus", "", r"prometheus_program|promtool|which\(\"prometheus\"\)", demanded="any"),
)  # fmt: skip

BY_HAND = """\
## Tests of others, run by hand

librdkafka's own tests, from the sources of its release 2.15.0, built with `./configure` and `make`, ran
against three brokers of `scripts/local-cluster.sh --brokers 3 -- COMMAND`. The command writes the brokers'
addresses, `$HOLDFAST_BOOTSTRAP`, to `tests/test.conf` as `metadata.broker.list`, and runs each test with
`TEST_KAFKA_VERSION=3.9.1 TESTS=0103 ./test-runner -p1`. They do not run with each change. The machine was so
busy that `test.timeout.multiplier` was 10.

| librdkafka's test | What it said |
| --- | --- |
"""
LIBRDKAFKAS_OWN = {
    "0103_transactions": "all 13 cases and the one without a broker passed, in 182 s: misuse; transactions "
    "with and without compression; consuming and producing in one; fencing; errors of idempotence with "
    "KIP-360; empty transactions, with offsets and without, committed and aborted; high watermarks by "
    "isolation level; the leader epoch of markers",
    "0098_consumer_txn": "all seven scenarios passed, 0 to 6, with Kafka's Java producer (3.9.1), and with "
    "librdkafka's own in 176 s. Earlier, on a machine with a load average of 40, scenario 5 ended twice with "
    "an abort 200 ms after the begin, which was refused with INVALID_TXN_STATE: the markers of the commit "
    "before it came 506 ms after the commit, so the partition could not be added before the abort. They "
    "were late because a follower's fetch waited beside them; since it does not, markers came within 32 ms, "
    "most within 5. librdkafka aborts a transaction to which nothing could be added yet, and Kafka's "
    "coordinator refuses that too, in the state PrepareCommit",
    "0129_fetch_aborted_msgs": "passed",
    "0130_store_offsets": "passed",
    "0061_consumer_lag": "passed: the lag with transactions and without",
    "0101_fetch_from_follower": "passed, with the racks RACK1 to RACK3, the rack-aware selector and "
    "`single.reader=off`: 239 KB came from the follower in the consumer's rack, and 1 KB from the leader. "
    "With `single.reader=claimed`, the default, all came from the leader, as differences.md says",
    "0118_commit_rebalance": "passed",
    "0090_idempotence": "passed",
}
"""Those of librdkafka's tests that are about transactions, offsets and idempotence, and what was seen."""


def page(versions: Mapping[str, str]) -> str:
    """The page, with these versions by the names of the software."""
    rows = [
        f"| {each.name} | {_demanded(each)} | {versions.get(each.name, MISSING)} | {_files(each)} |"
        for each in SOFTWARE
    ]
    table = "| Software | Demanded | Ran with | By |\n| --- | --- | --- | --- |\n" + "\n".join(rows)
    suites = "\n".join(f"| `{path.relative_to(HOME)}` | {_purpose(path)} |" for path in _suites())
    others = (
        "| | |\n| --- | --- |\n"
        f"| Python | {_option('options', 'python_requires')} |\n"
        "| ZooKeeper | 3.6 or later; the tests run the one among PySpark's jars |\n"
        "| Java, for ZooKeeper and Spark | 17 or later |\n"
        "| Operating system | Linux |\n"
    )
    by_hand = BY_HAND + "".join(f"| `{name}` | {said} |\n" for name, said in LIBRDKAFKAS_OWN.items())
    return (
        f"{INTRODUCTION}\n## Software\n\n{table}\n\n## Suites\n\n| Suite | What it checks |\n| --- | --- |\n"
        f"{suites}\n\n{by_hand}\n## What Holdfast runs on\n\n{others}"
    )


def versions_here() -> dict[str, str]:
    """The versions of the software on this machine."""
    found = {}
    for each in SOFTWARE:
        version = each.version or _version(each)
        if version:
            found[each.name] = version
    return found


def versions_in(text: str) -> dict[str, str]:
    """The versions that a page has."""
    rows = re.findall(r"^\| ([^|`]+) \| [^|]+ \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    return {name: version for name, version in rows if name in {each.name for each in SOFTWARE}}


def _version(software: Software) -> str:
    try:
        if software.package:
            return metadata.version(software.package)
        if software.name == "kcat":
            return _printed(["kcat", "-V"], r"Version ([\d.]+)")
        if software.name == "Prometheus":
            return _printed(["prometheus", "--version"], r"version ([\d.]+)")
        old = HOME / ".venv-kafka-python-2" / "bin" / "python"
        return _printed(
            [str(old), "-c", "from importlib.metadata import version; print('v', version('kafka-python'))"],
            r"v ([\d.]+)",
        )
    except metadata.PackageNotFoundError:
        return ""


def _printed(command: list[str], pattern: str) -> str:
    """A version that a program prints; empty if the program is missing."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    return found.group(1) if found else ""


def _demanded(software: Software) -> str:
    if software.package:
        return demand(software.package)
    if software.demanded == "scripts/test.sh":
        (found,) = re.findall(r"wanted='kafka-python([^']+)'", (HOME / "scripts/test.sh").read_text())
        return f"`{found}`"
    return "this one" if software.demanded == "this" else "any"


def demand(package: str) -> str:
    """What setup.cfg demands of a package for the tests, or for Spark."""
    lines = f"{_option('options.extras_require', 'test')}\n{_option('options.extras_require', 'spark')}"
    (found, *_) = re.findall(rf"^{re.escape(package)}(?:\[\w+\])?([<>=].*)$", lines, re.MULTILINE)
    return f"`{found}`"


def _option(section: str, name: str) -> str:
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    return config[section][name]


def _suites() -> list[Path]:
    return sorted(path for folder in SUITES for path in (HOME / "tests" / folder).glob("test_*.py"))


def _files(software: Software) -> str:
    paths = sorted({*_suites(), *(HOME / "tests" / "protocol").glob("test_*.py")})
    found = [path for path in paths if re.search(software.needle, path.read_text())]
    return ", ".join(f"`{path.relative_to(HOME / 'tests')}`" for path in found)


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    # A version that this machine lacks is kept.
    known = versions_in(PAGE.read_text()) if PAGE.exists() else {}
    sys.stdout.write(page({**known, **versions_here()}))
