"""Finding ZooKeeper's jars: in PySpark, in the cache, by download; and never one with a wrong checksum."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_log.coordinator.tools import zookeeper_jars
from holdfast_log.coordinator.tools.directories import CACHE_VARIABLE
from holdfast_log.coordinator.tools.zookeeper_jars import JARS, Jar, JarsError, find_jars

CONTENT = b"a jar"
JAR = Jar("org.example", "example", "1.0", sha256(CONTENT).hexdigest())


class Repository:
    """A Maven repository in memory, in place of the library's context. It counts downloads."""

    def __init__(self, content: bytes | Exception) -> None:
        self.content = content
        self.downloads = 0

    def context(self, repo_cache: Path, timeout: int) -> Repository:
        assert timeout > 0
        self._path = repo_cache / "downloaded.jar"
        return self

    def project(self, group: str, name: str) -> Repository:
        assert (group, name) == (JAR.group, JAR.name)
        return self

    def at_version(self, version: str) -> Repository:
        assert version == JAR.version
        return self

    def artifact(self) -> Repository:
        return self

    def resolve(self) -> Path:
        self.downloads += 1
        if isinstance(self.content, Exception):
            raise self.content
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(self.content)
        return self._path


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, on a machine without PySpark, for a server that needs one jar."""
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    monkeypatch.setattr(zookeeper_jars, "JARS", (JAR,))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "zookeeper" / JAR.file_name


def offer(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> Repository:
    repository = Repository(content)
    monkeypatch.setitem(sys.modules, "jgo.maven", SimpleNamespace(MavenContext=repository.context))
    return repository


def test_the_jars_of_pyspark_are_used_where_it_has_them_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jars").mkdir()
    for jar in JARS:
        (tmp_path / "jars" / f"{jar.name}-9.9.jar").touch()
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: str(tmp_path))

    assert find_jars() == [str(tmp_path / "jars" / f"{jar.name}-9.9.jar") for jar in JARS]


def test_a_missing_jar_is_downloaded_once_and_stored_once(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    repository = offer(monkeypatch, CONTENT)

    assert find_jars() == find_jars() == [str(cache)]
    assert (cache.read_bytes(), repository.downloads) == (CONTENT, 1)
    assert list(cache.parent.iterdir()) == [cache]


def test_a_download_with_another_checksum_is_refused(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    offer(monkeypatch, b"something else")

    with pytest.raises(JarsError, match=f"expected {JAR.sha256}"):
        find_jars()
    assert not cache.exists()


def test_a_cached_jar_that_has_changed_is_removed(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    offer(monkeypatch, CONTENT)
    find_jars()
    cache.write_bytes(CONTENT + b"!")

    with pytest.raises(JarsError, match="has been removed"):
        find_jars()
    assert find_jars() == [str(cache)] and cache.read_bytes() == CONTENT


def test_a_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    offer(monkeypatch, OSError("no route to host"))

    with pytest.raises(JarsError, match=rf"no route to host\. Without a network, copy {JAR.file_name} to"):
        find_jars()
