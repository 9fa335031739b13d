"""The tests of connections, sockets and the dispatcher again, with nothing compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_log.protocol.compiled import WIRE
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE

HOME = Path(__file__).parents[3]
TESTS = ("broker/network/test_connection.py", "broker/network/test_listener.py", "broker/test_dispatch.py")


@pytest.mark.skipif(WIRE is None, reason="nothing is compiled: the tests themselves run in Python")
def test_connections_and_the_dispatcher_pass_the_same_tests_in_python() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(HOME / "tests" / name) for name in TESTS)],
        cwd=HOME,
        env={**os.environ, PURE_PYTHON_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
