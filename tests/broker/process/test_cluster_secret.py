"""The file with the cluster's secret: what is accepted, and what the error says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.process.cluster_secret import read_cluster_secret
from holdfast_log.clients.settings import SettingError


def written(directory: Path, content: bytes, mode: int = 0o600) -> str:
    path = directory / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_without_a_file_there_is_no_secret() -> None:
    assert read_cluster_secret(None) is None


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_each_line_is_a_key(tmp_path: Path, mode: int) -> None:
    secret = read_cluster_secret(written(tmp_path, b"a" * 64 + b"\n\n " + b"b" * 32 + b" \n", mode))
    assert secret is not None
    assert secret.keys == (b"a" * 64, b"b" * 32)


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"", 0o600, "the file is empty; make it with: "),
        (b"\n \n", 0o600, "the file is empty"),
        (b"x" * 31, 0o600, "expected at least 32 characters on each line"),
        (b"x" * 32 + b"\nshort", 0o600, "expected at least 32 characters on each line"),
        (b"x" * 32, 0o604, "run chmod o-rwx on it"),
        (b"x" * 32, 0o602, "run chmod o-rwx on it"),
    ],
)
def test_a_file_that_protects_nothing_is_refused(
    tmp_path: Path, content: bytes, mode: int, message: str
) -> None:
    path = written(tmp_path, content, mode)
    with pytest.raises(SettingError, match=message) as raised:
        read_cluster_secret(path)
    assert f"cluster.secret.file={path!r} is not allowed" in str(raised.value)
    assert "xxxx" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="it cannot be read: No such file or directory; make it with"):
        read_cluster_secret(str(tmp_path / "none"))
