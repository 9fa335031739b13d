"""Values of properties files that are kept in other files, in directories and in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.settings.command_line import read_settings
from holdfast_log.clients.config import CONSUMER_ROWS, load_settings
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.references import load_properties, resolved
from holdfast_log.clients.settings import HiddenText, Setting, SettingError, Settings, SettingType

SECRET = "correct-horse"
ENVIRONMENT = {"KEY_PASSWORD": SECRET, "HOST": "zk-1", "EMPTY": ""}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text(f"key.password={SECRET}\nport=2181\nodd=${{env:HOST}}\n")
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "secrets"
    place.mkdir()
    (place / "password").write_text(f"{SECRET}\n")
    (place / "picture").write_bytes(b"\xff\xd8")
    return place


def one(value: str) -> str:
    return resolved({"ssl.key.password": value}, ENVIRONMENT)["ssl.key.password"]


def test_a_value_is_taken_from_where_it_is_kept(secrets: Path, directory: Path) -> None:
    assert one(f"${{file:{secrets}:key.password}}") == SECRET
    assert one(f"${{directory:{directory}:password}}").strip() == SECRET
    assert one("${env:KEY_PASSWORD}") == SECRET
    assert one("${env:EMPTY}") == ""


def test_references_may_be_parts_of_a_value(secrets: Path) -> None:
    assert one(f"${{env:HOST}}:${{file:{secrets}:port}},zk-2/x") == "zk-1:2181,zk-2/x"


@pytest.mark.parametrize("value", ["plain", "$5", "${}", "${nothing}", "a:b", "RULE:^CN=(.*)$/$1/L", "${:x}"])
def test_what_is_no_reference_stays_as_it_is(value: str) -> None:
    assert one(value) == value
    assert not isinstance(one(value), HiddenText)


def test_what_a_reference_leads_to_is_not_looked_into(secrets: Path) -> None:
    """The author of the other file cannot read further ones."""
    assert one(f"${{file:{secrets}:odd}}") == "${env:HOST}"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${env:MISSING}", "the environment has no variable MISSING: set it where"),
        ("${vault:a:b}", "vault is none of file, directory, env"),
        ("${file:SECRETS:nothing}", "the file has no key nothing: add it"),
        ("${file:SECRETS}", "expected ${file:PATH:KEY}"),
        ("${file:BROKEN:key}", "the file is not a valid properties file"),
        ("${file:/nowhere:key}", "the file cannot be read: No such file"),
        ("${directory:DIRECTORY:missing}", "the file cannot be read: No such file"),
        ("${directory:DIRECTORY:..}", "expected the name of a file in the directory itself"),
        (
            "${directory:DIRECTORY:../secrets.properties}",
            "expected the name of a file in the directory itself",
        ),
        ("${directory:DIRECTORY:picture}", "the file is no text in UTF-8"),
    ],
)
def test_a_reference_without_a_value_names_the_setting(
    secrets: Path, directory: Path, reference: str, why: str
) -> None:
    broken = secrets.with_name("broken")
    broken.write_text(f"key={SECRET}\\u12zz")
    reference = (
        reference.replace("BROKEN", str(broken))
        .replace("SECRETS", str(secrets))
        .replace("DIRECTORY", str(directory))
    )

    with pytest.raises(SettingError) as refused:
        one(f"x{reference}")

    assert str(refused.value).startswith(f"ssl.key.password={reference} is not allowed: ")
    assert why in str(refused.value) and SECRET not in str(refused.value)


def test_a_wrong_value_from_elsewhere_is_not_shown() -> None:
    def check(value: str) -> None:
        raise ValueError(f"a word other than {value}")

    rows = [
        Setting("number", SettingType.INT, 1, ""),
        Setting("word", SettingType.STRING, "", "", check=check),
    ]
    for name, expected in (("number", "a whole number"), ("word", "text")):
        with pytest.raises(SettingError) as refused:
            Settings(rows, resolved({name: "${env:KEY_PASSWORD}"}, ENVIRONMENT))
        assert str(refused.value) == f"{name}=(hidden) is not allowed: expected {expected}"


def test_a_broker_takes_references_from_its_file_and_its_command_line(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_PARTITIONS", "7")
    path = tmp_path / "server.properties"
    path.write_text(f"zookeeper.connect=zk-1:${{file:{secrets}:port}}\n")

    settings = read_settings(str(path), ["num.partitions=${env:HOLDFAST_TEST_PARTITIONS}"])

    assert settings["zookeeper.connect"] == "zk-1:2181"
    assert settings["num.partitions"] == 7
    with pytest.raises(SettingError, match=r"broker\.id=\$\{env:NO_SUCH_THING\} is not allowed"):
        read_settings(str(path), ["broker.id=${env:NO_SUCH_THING}"])


def test_a_client_takes_references_from_its_file(tmp_path: Path, secrets: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text(
        f"bootstrap.servers=localhost:${{file:{secrets}:port}}\nssl.key.password=${{file:{secrets}:key.password}}"
    )

    settings = load_settings(CONSUMER_ROWS, path, "a consumer")

    assert settings["bootstrap.servers"] == ("localhost:2181",)
    assert settings["ssl.key.password"] == SECRET
    path.write_text("bootstrap.servers=${env:NO_SUCH_THING}\n")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers=\$\{env:NO_SUCH_THING\} is not allowed"):
        load_settings(CONSUMER_ROWS, path, "a consumer")


def test_properties_in_a_mapping_are_taken_as_they_are(secrets: Path) -> None:
    """An application that passes on what a stranger gives must not read files for the stranger."""
    given = {"bootstrap.servers": "localhost:1", "client.id": f"${{file:{secrets}:key.password}}"}

    assert load_settings(CONSUMER_ROWS, given, "a consumer")["client.id"] == given["client.id"]


def test_each_file_is_read_once(tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast_log.clients import references

    read: list[object] = []
    real = references.read_properties
    monkeypatch.setattr(references, "read_properties", lambda path: read.append(path) or real(path))
    path = tmp_path / "client.properties"
    path.write_text("".join(f"key.{number}=${{file:{secrets}:port}}\n" for number in range(3)))

    assert set(load_properties(path).values()) == {"2181"}
    assert read == [path, str(secrets)]
