"""The operating system's disk, where a write fails halfway."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast_log.broker.log.disk import OsDisk


def test_a_replacement_that_does_not_fit_leaves_the_old_content_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk, path = OsDisk(), str(tmp_path / "checkpoint")
    disk.write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomically(path, b"new" * 1000)
    assert disk.list(str(tmp_path)) == ["checkpoint"]
    assert disk.read(path) == b"old"
