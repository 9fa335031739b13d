"""The file with a broker's user and password for ZooKeeper, and the settings that need it."""

from __future__ import annotations

import ast
import stat
from pathlib import Path

import pytest

from holdfast_log.broker.process.zookeeper_identity import make_digest_file, zookeeper_identity
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.znodes.access import ROOTS, restricted
from holdfast_log.coordinator.znodes.layout import PERSISTENT_PATHS
from holdfast_log.coordinator.zookeeper.access import ZnodeAccess, for_everybody

HOME = Path(__file__).parent.parent.parent.parent
PASSWORD = "correct-horse"


@pytest.fixture
def digest_file(tmp_path: Path) -> Path:
    path = tmp_path / "digest"
    path.write_text(f"holdfast:{PASSWORD}\n")
    path.chmod(0o600)
    return path


def test_the_file_names_the_user_and_the_password(digest_file: Path) -> None:
    identity = zookeeper_identity(str(digest_file), restricts=True)

    assert identity.digest == f"holdfast:{PASSWORD}"
    assert identity.restricts
    assert PASSWORD not in repr(identity)


def test_without_the_settings_everybody_may_use_the_znodes() -> None:
    identity = zookeeper_identity(None, restricts=False)

    assert identity.digest is None and not identity.restricts


def test_a_digest_alone_restricts_nothing(digest_file: Path) -> None:
    assert zookeeper_identity(str(digest_file), restricts=False).rule is for_everybody


def test_restricted_znodes_need_a_digest() -> None:
    with pytest.raises(
        SettingError,
        match=r"zookeeper\.set\.acl=true .* zookeeper\.digest\.file or zookeeper\.sasl\.file: name a file",
    ):
        zookeeper_identity(None, restricts=True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused(digest_file: Path, mode: int) -> None:
    digest_file.chmod(mode)

    with pytest.raises(SettingError, match="run chmod 600") as error:
        zookeeper_identity(str(digest_file), restricts=False)

    assert PASSWORD not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        PASSWORD,
        f":{PASSWORD}",
        "holdfast:",
        f"a b:{PASSWORD}",
        f"a:{PASSWORD}\nb:{PASSWORD}",
        "é:x" + PASSWORD,
        f"a:{PASSWORD * 1000}",
    ],
)
def test_a_file_of_another_form_is_refused_without_showing_it(digest_file: Path, content: str) -> None:
    digest_file.write_text(content)

    with pytest.raises(SettingError, match="expected USER:PASSWORD on one line") as error:
        zookeeper_identity(str(digest_file), restricts=False)

    assert PASSWORD not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="nowhere' is not allowed: it cannot be read: No such file"):
        zookeeper_identity(str(tmp_path / "nowhere"), restricts=False)


def test_a_password_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "digest"
    make_digest_file(path)
    made = zookeeper_identity(str(path), restricts=True).digest
    make_digest_file(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made is not None and len(made) == len("holdfast:") + 64
    assert zookeeper_identity(str(path), restricts=True).digest == made


def test_a_password_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "digest").symlink_to(tmp_path / "elsewhere")

    make_digest_file(tmp_path / "digest")

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", ZnodeAccess.READABLE),
        ("/brokers/topics/orders", ZnodeAccess.READABLE),
        ("/holdfast/log_directories/1", ZnodeAccess.READABLE),
        ("/config/topics/orders", ZnodeAccess.READABLE),
        ("/config/users", ZnodeAccess.CLOSED),
        ("/config/users/alice", ZnodeAccess.CLOSED),
        ("/config/users-of-others", ZnodeAccess.READABLE),
        ("/config/brokers/1", ZnodeAccess.CLOSED),
        ("/holdfast/ownership/names/x", ZnodeAccess.CLOSED),
        ("/consumers", ZnodeAccess.EVERYBODY),
        ("/consumers/group/offsets", ZnodeAccess.EVERYBODY),
        ("/consumers-of-others", ZnodeAccess.READABLE),
    ],
)
def test_others_may_read_what_is_no_secret(path: str, access: ZnodeAccess) -> None:
    assert restricted(path) is access


def test_every_znode_that_brokers_know_is_below_the_roots() -> None:
    named = {
        node.value.value
        for folder in ("znodes", "ownership", "groups", "cluster", "controller")
        for source in (HOME / "coordinator" / folder).rglob("*.py")
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper()
        if isinstance(node.value, ast.Constant) and str(node.value.value).startswith("/")
    }
    tops = {"/" + path.split("/")[1] for path in named | set(PERSISTENT_PATHS)}

    assert "/holdfast" in tops and len(named) > 15
    assert tops <= set(ROOTS)
