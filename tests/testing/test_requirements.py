"""Without packages of the server, what needs them says what to install, and the rest can be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_log.testing.requirements import require_server

HOME = Path(__file__).parents[2]


def test_the_message_names_the_packages_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    require_server("this")
    monkeypatch.setitem(sys.modules, "kazoo", None)

    with pytest.raises(ImportError, match=r"^this needs kazoo, .*: pip install 'holdfast-log\[server\]'$"):
        require_server("this")


def test_loading_the_plugin_imports_pytest_and_no_part_of_holdfast_beside_itself() -> None:
    code = (
        "import sys\n"
        "import pytest\n"
        "before = set(sys.modules)\n"
        "import holdfast_log.testing.plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if '.' not in name or 'holdfast' in name))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, timeout=300, check=True
    )

    assert {name for name in answer.stdout.split() if "holdfast" in name or name in {"twisted", "kazoo"}} == {
        "holdfast_log",
        "holdfast_log.testing",
        "holdfast_log.testing.plugin",
        "holdfast_log.testing.requirements",
    }
