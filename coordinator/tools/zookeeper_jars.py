"""The jars of the ZooKeeper server: PySpark's where it is installed, otherwise downloaded once into a cache.

Downloads come from Maven Central. Each jar is compared with its SHA-256 checksum before it is used, even if
it was in the cache already.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.coordinator.tools.directories import cache_directory

_DOWNLOAD_TIMEOUT_S = 60


class JarsError(Exception):
    """The jars are not there and cannot be downloaded. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on Maven Central: `group:name:version`, and the SHA-256 checksum of the file."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


JARS = (
    Jar(
        "org.apache.zookeeper", "zookeeper", "3.9.5",
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
    ),
    Jar(
        "org.apache.zookeeper", "zookeeper-jute", "3.9.5",
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    Jar(
        "org.slf4j", "slf4j-api", "2.0.17",
        "7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832",
    ),
    Jar(
        "org.apache.logging.log4j", "log4j-api", "2.25.4",
        "c4b642a7f047275215de117e0e3847eb2c7711d84a0aa7433e7b3c096daf341d",
    ),
    Jar(
        "org.apache.logging.log4j", "log4j-core", "2.25.4",
        "10fee2c0485d54fa44ee75d314f6295508f7b932281873db61a91b88073200e6",
    ),
    Jar(
        "org.apache.logging.log4j", "log4j-slf4j2-impl", "2.25.4",
        "dd897abc5eb3a6d965426c7937b92dd43e67c82d9819bea5d19f311516c68be3",
    ),
    Jar(
        "org.xerial.snappy", "snappy-java", "1.1.10.8",
        "50485d06037fea3d6e40c968386feeca6338cc9872e25549593ff3eb352cefcc",
    ),
    Jar(
        "io.dropwizard.metrics", "metrics-core", "4.2.37",
        "3c70d19049d10f474ab803706b9c0677bcf5fd9e1afeb4f6c496f62e38b27678",
    ),
)  # fmt: skip
"""What the server needs, in the versions that PySpark 4.3 has: 7 MB."""


def find_jars() -> list[str]:
    """The paths of the jars that the server needs. Downloads those that are missing. Raises `JarsError`."""
    return _pyspark_jars() or [str(_cached(jar)) for jar in JARS]


def _pyspark_jars() -> list[str]:
    """The jars among those of the installed PySpark, of whichever versions; none if one is missing. With them
    those of Netty, which the server needs for TLS."""
    folder = package_folder("pyspark")
    if folder is None:
        return []
    found = [sorted(Path(folder, "jars").glob(f"{jar.name}-[0-9]*.jar"))[-1:] for jar in JARS]
    if not all(found):
        return []
    netty = sorted(Path(folder, "jars").glob("netty-*.jar"))
    return [str(path) for matches in (*found, netty) for path in matches]


def package_folder(name: str) -> str | None:
    """The folder of an installed package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return next(iter(locations), None) if locations else None


def _cached(jar: Jar) -> Path:
    """The path of a jar with the right checksum, downloaded if the cache has none."""
    path = cache_directory() / "zookeeper" / jar.file_name
    if not path.exists():
        _download(jar, path)
    _check(jar, path)
    return path


def _download(jar: Jar, path: Path) -> None:
    """Download a jar to `path`, which several processes may do at the same time."""
    try:
        from jgo.maven import MavenContext
    except ImportError:
        raise JarsError(
            "ZooKeeper's jars are downloaded with the package jgo, which is not installed: "
            "pip install 'holdfast-log[server]'"
        ) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=path.parent) as downloads:
            context = MavenContext(repo_cache=Path(downloads), timeout=_DOWNLOAD_TIMEOUT_S)
            found = context.project(jar.group, jar.name).at_version(jar.version).artifact().resolve()
            _check(jar, found)
            found.replace(path)
    except (OSError, RuntimeError, ValueError) as error:  # requests' errors are OSErrors
        raise JarsError(
            f"cannot download {jar.group}:{jar.name}:{jar.version}, which ZooKeeper needs, from Maven "
            f"Central: {error}. Without a network, copy {jar.file_name} to {path.parent}, or install "
            "PySpark, which has it"
        ) from error


def _check(jar: Jar, path: Path) -> None:
    """Raise `JarsError`, and remove the file, if its checksum is not the jar's."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found == jar.sha256:
        return
    path.unlink(missing_ok=True)
    raise JarsError(
        f"{path} is not {jar.file_name}: its SHA-256 is {found}, expected {jar.sha256}. "
        "The file has been removed; try again"
    )
