"""The documentation as a site: no broken link, nothing from other hosts, drawings as their texts."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from tests.compat.compatibility import MISSING, PAGE, SOFTWARE, demand, page, versions_in
from tests.console.browser import Browser

HOME = Path(__file__).parents[1]
DRAWINGS = sorted((HOME / "docs" / "drawings").glob("*.txt"))
LINES_MAX = 600
SCHEME_IS = "return document.body.getAttribute('data-md-color-scheme') === arguments[0]"
FETCHING = {
    "script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"),
    "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",), "input": ("src",),
    "use": ("href", "xlink:href"), "image": ("href", "xlink:href"), "base": ("href",), "form": ("action",),
}  # fmt: skip
"""What a browser fetches without being asked, and where forms lead."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as scripts/docs.sh builds it."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material and mkdocstrings are not installed: pip install 'holdfast-log[docs]'")
    found = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [HOME / "scripts" / "docs.sh", "--output", found],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "HOLDFAST_VENV": sys.prefix},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return found


class _Fetches(HTMLParser):
    """Gathers the addresses that a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = ("href",) if tag == "link" else FETCHING.get(tag, ())
        self.addresses += [given[name] or "" for name in names if name in given]
        if style := given.get("style"):
            self.addresses += fetched_by_style(style)


def fetched_by_style(text: str) -> list[str]:
    """The addresses that a style sheet names."""
    return [*re.findall(r"url\(\s*['\"]?([^'\")]+)", text), *re.findall(r"@import\s+['\"]([^'\"]+)", text)]


def is_foreign(address: str) -> bool:
    return bool(re.match(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", address, re.IGNORECASE))


def test_no_page_fetches_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    foreign = []
    for path in pages:
        found = _Fetches()
        found.feed(path.read_text())
        foreign += [f"{path.name}: {each}" for each in found.addresses if is_foreign(each)]
    for path in (*site.rglob("*.css"), *site.rglob("*.svg")):
        foreign += [f"{path.name}: {each}" for each in fetched_by_style(path.read_text()) if is_foreign(each)]

    assert len(pages) > 40 and foreign == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ('<link rel="stylesheet" href="https://fonts.example/css">', "https://fonts.example/css"),
        ('<script src="//cdn.example/a.js"></script>', "//cdn.example/a.js"),
        ('<p style="background: url(http://a.example/b.png)">', "http://a.example/b.png"),
    ],
)
def test_a_fetch_from_another_host_would_be_noticed(text: str, address: str) -> None:
    found = _Fetches()
    found.feed(text)

    assert found.addresses == [address] and is_foreign(address)
    assert not is_foreign("assets/a.css") and not is_foreign("../index.html")


def test_the_pages_that_are_made_are_there(site: Path) -> None:
    admin = (site / "reference" / "admin.html").read_text()
    assert "force_release" in admin and "describe_scram_credentials" in admin
    reference = (site / "reference" / "index.html").read_text()
    listed = ("ExclusiveProducer", "Lease", "fence_offset", "send_at", "poll_batches")
    assert all(name in reference for name in listed)
    asynchronous = (site / "reference" / "aio.html").read_text()
    listed = ("AsyncConsumer", "poll_batches", "AsyncProducer", "send_many", "AsyncTransaction")
    assert all(name in asynchronous for name in listed)
    assert "GuardMismatchError" in (site / "reference" / "errors.html").read_text()
    assert "guarded_table.py" in (site / "examples" / "index.html").read_text()
    assert "One writer" in (site / "getting-started.html").read_text()
    assert (site / "drawings" / "produce.svg").exists()


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of a server of the site."""
    handler = functools.partial(_QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_browser_fetches_from_this_host_only_and_finds_words(served: str, tmp_path: Path) -> None:
    browser = Browser(tmp_path / "profile")
    try:
        for page in ("index", "concepts", "reference/admin", "operating"):
            for scheme in ("light", "dark"):
                browser.dress(scheme)
                browser.open(f"{served}/{page}.html")
                browser.wait("a heading", lambda: browser.text("h1"))
                wanted = {"light": "default", "dark": "slate"}[scheme]
                browser.wait(scheme, functools.partial(browser.run, SCHEME_IS, wanted))
                browser.picture(f"site-{page.replace('/', '-')}-{scheme}")
            fetched = browser.run("return performance.getEntriesByType('resource').map((each) => each.name)")
            assert fetched and [each for each in fetched if not each.startswith(served)] == []
        browser.driver.find_element("css selector", "input.md-search__input").send_keys("fence offset")
        browser.wait("what was found", lambda: "fence" in browser.text(".md-search-result__list"))
        assert browser.complaints() == []
    finally:
        browser.close()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"([\w/-]+\.md)$", (HOME / "mkdocs.yml").read_text(), re.MULTILINE))
    written = {str(path.relative_to(HOME / "docs")) for path in (HOME / "docs").rglob("*.md")}

    assert written <= listed


def test_no_page_that_is_written_by_hand_is_too_long() -> None:
    long = [
        f"{path.name}: {lines}"
        for path in (HOME / "docs").rglob("*.md")
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    ]

    assert long == []


# Drawings -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawings() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "drawings", HOME / "docs" / "making" / "drawings.py"
    )
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # Its dataclasses look for it there.
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("source", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_matches_its_text(source: Path, drawings: ModuleType) -> None:
    assert source.with_suffix(".svg").read_text() == drawings.drawn(source.read_text()), (
        "run: python docs/making/drawings.py"
    )


def test_a_line_that_is_no_step_is_refused(drawings: ModuleType) -> None:
    with pytest.raises(drawings.DrawingError, match="Nobody > A"):
        drawings.drawn("sequence A title\nactors A | B\nNobody > A: hello\n")
    with pytest.raises(drawings.DrawingError, match="begins with"):
        drawings.drawn("poem\n")


# Compatibility --------------------------------------------------------------------------------------------


def test_the_page_of_compatibility_says_what_the_tests_run() -> None:
    text = PAGE.read_text()

    assert text == page(versions_in(text)), (
        "run: python -m tests.compat.compatibility > docs/compatibility.md"
    )


def test_every_software_is_run_by_a_test() -> None:
    rows = re.findall(r"^\| ([^|`]+) \| [^|]+ \| [^|]+ \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    by_name = dict(rows)

    assert all("test_" in by_name[each.name] for each in SOFTWARE)


def test_the_versions_of_the_page_are_those_that_are_demanded() -> None:
    ran = versions_in(PAGE.read_text())
    for each in SOFTWARE:
        if each.package:
            (low,) = re.findall(r">=([\d.]+)", demand(each.package))
            assert ran[each.name] != MISSING, f"{each.name} was never run"
            assert numbers(ran[each.name]) >= numbers(low)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
