"""Starting the console: what is refused, and with which advice; it serves until it is told to stop."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast_log.console.main import console
from holdfast_log.console.options import ConsoleOptions
from holdfast_log.console.serving import serve
from tests.cluster import Cluster
from tests.console.served import HOME, LONG_SESSION, running_console

BROKER = ("--bootstrap-server", "127.0.0.1:1")


def refused(*options: str) -> str:
    answer = CliRunner().invoke(console, [*BROKER, *options])
    assert answer.exit_code in (1, 2), answer.output
    return answer.output


def test_an_address_that_others_reach_needs_a_login() -> None:
    said = refused("--listen", "0.0.0.0:0")

    assert "without a login everybody there would see the cluster" in said and "ssh -L" in said


def test_a_login_needs_sasl() -> None:
    assert "--login needs" in refused("--login")


def test_wrong_options_are_explained(tmp_path: Path) -> None:
    assert "give host:port" in refused("--listen", "8080")
    assert "--certificate and --key need each other" in refused("--certificate", "a.pem")
    assert "bootstrap" in str(CliRunner().invoke(console, ["--bootstrap-server", "nonsense"]).exception)
    (tmp_path / "client.properties").write_text("max.block=1\n")
    answer = CliRunner().invoke(console, [*BROKER, "--command-config", str(tmp_path / "client.properties")])
    assert "max.block" in str(answer.exception)


def test_a_host_without_an_address_is_named() -> None:
    options = ("--login", "--behind-tls", "--listen", "nobody.invalid:0")

    assert "--login needs" in refused(*options), "what is missing for a login comes first"
    with pytest.raises(click.ClickException, match=r"nobody.invalid has no address"):
        serve({"bootstrap.servers": "127.0.0.1:1"}, ConsoleOptions("nobody.invalid"), None, None)


def test_a_missing_package_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast_log.console.serving")
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    said = refused()

    assert "needs the package uvicorn" in said and "holdfast-log[console]" in said


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        assert f"cannot listen on 127.0.0.1:{port}" in refused("--listen", f"127.0.0.1:{port}")


def test_the_script_says_how_it_is_used() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "holdfast_log.console.main", "--help"],
        cwd=HOME, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    assert "Usage: console.sh" in answer.stdout and "--allow-changes" in answer.stdout


def test_it_shows_a_real_cluster_and_tells_of_new_looks(cluster: Cluster) -> None:
    cluster.start(1, LONG_SESSION)
    with running_console(cluster.bootstrap, "--refresh-ms", "500") as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=300)
        connection.request("GET", "/")
        page = connection.getresponse().read().decode()
        assert "The cluster is healthy" in page
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        looks = 0
        while looks < 3:
            looks += answer.readline().startswith(b"event: look")
        connection.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to_also_while_somebody_watches(how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast_log.console.main", *BROKER, "--listen", "127.0.0.1:0"],
        cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().partition("http://")[2].partition("/")[0]
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.readline().startswith(b"retry")

    process.send_signal(how)
    _, errors = process.communicate(timeout=120)

    assert "Traceback" not in errors
    connection.close()
