"""What is written about the software is true: generated tables, commands, links, docstrings, dependencies."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.usages import printed

HOME = Path(__file__).parent.parent
LATE_S = 300.0
"""A program of some seconds takes minutes where others use the processors."""
PACKAGES = sorted(found.parent for found in HOME.glob("*/__init__.py"))
PROSE = [HOME / "README.md", *sorted((HOME / "docs").glob("**/*.md"))]
SCRIPTS = [path for path in sorted((HOME / "scripts").glob("*.sh")) if path.name != "common.sh"]

GENERATED = {
    "docs/metrics.md": "holdfast_log.broker.wiring.metrics",
    "docs/settings.md": "holdfast_log.broker.settings.rows",
    "docs/wire-format.md": "holdfast_log.protocol.describe_fields",
    "docs/spark-options.md": "holdfast_log.pipeline.options",
    "docs/spark-sink-options.md": "holdfast_log.pipeline.sink.options",
}
"""Each generated page, and the module that prints it: python -m MODULE > PAGE."""

WRITTEN = [
    path
    for folder in (*PACKAGES, HOME / "docs", HOME / "scripts", HOME / "config", HOME)
    if folder.name != "tests"
    for path in sorted(folder.glob("*" if folder == HOME else "**/*"))
    if path.suffix in {".py", ".md", ".sh", ".properties", ".cfg", ".toml"}
]
"""All text of the project except its tests, which quote the documents that they check."""

TESTING = HOME / "docs" / "testing.md"
LONG = re.compile(r"^@pytest\.mark\.campaign\n(?:@.*\n|[ )\]].*\n)*def (test_\w+)", re.MULTILINE)
"""Tests that scripts/test.sh leaves out."""

MADE = [
    HOME / "docs" / path
    for path in (
        "getting-started.md", "examples/index.md", "reference/index.md", "reference/admin.md",
        "reference/aio.md", "reference/errors.md",
    )
]  # fmt: skip
"""Pages that only the site has: docs/making/hooks.py makes them, and tests/test_site.py looks at them."""

UNPLAIN = re.compile(
    r"\b(?:whoever|he who|that which|tells? of|(?:is|are|be|been|was|were) told of|nobody is told|as far as"
    r"|has to be missed|what comes of it|in nobody's way|its word)\b",
    re.IGNORECASE,
)
"""Turns of phrase that hide who acts, or what happens."""

OLD_CITATION = re.compile(
    r"\bseeds? \W?(?:own|client|kip|pip|kafka)\b|(?<!#)\bown-api\b|\bclient-rewrite\b|\bkafka-design\b"
    r"|\bkip-27-conditional-publish\b|\bpip-68-exclusive-producer\b|(?<!kafka )\bdesign §",
    re.IGNORECASE,
)
"""Names of files outside of the project. docs/design-sources.md has the names to cite."""


def names_of(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(HOME)) for path in paths]


@pytest.mark.parametrize(("page", "module"), GENERATED.items())
def test_a_generated_page_matches_the_output_of_its_module(page: str, module: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", module], cwd=HOME, capture_output=True, text=True, timeout=LATE_S, check=True
    ).stdout

    assert (HOME / page).read_text() == printed, f"run: python -m {module} > {page}"


@pytest.mark.parametrize("name", names_of(PROSE))
def test_every_script_and_module_that_a_page_names_exists(name: str) -> None:
    text = (HOME / name).read_text()
    scripts = set(re.findall(r"\bscripts/[\w-]+\.sh\b", text))
    modules = set(re.findall(r"\bpython3? -m ([\w.]+)", text))

    missing = [script for script in sorted(scripts) if not os.access(HOME / script, os.X_OK)]
    missing += [module for module in sorted(modules) if importlib.util.find_spec(module) is None]

    assert not missing


@pytest.mark.parametrize("name", names_of(PROSE))
def test_every_link_inside_the_project_has_an_existing_target(name: str) -> None:
    page = HOME / name
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())

    broken = [
        target
        for target in targets
        if "://" not in target
        and not (page.parent / target).resolve().exists()
        and (page.parent / target).resolve() not in MADE
    ]

    assert not broken


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/design-sources.md"])
def test_every_path_that_a_page_about_the_code_names_exists(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+[\w.]*)`", (HOME / page).read_text())

    assert named and [path for path in named if not (HOME / path).exists()] == []


@pytest.mark.parametrize("pattern", [UNPLAIN, OLD_CITATION], ids=["unplain", "old citation"])
def test_no_text_of_the_project_matches(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(HOME)}:{number}: {line.strip()}"
        for path in WRITTEN
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


@pytest.mark.parametrize("name", names_of(PROSE))
def test_every_python_example_can_be_parsed(name: str) -> None:
    for example in re.findall(r"```python\n(.*?)```", (HOME / name).read_text(), re.DOTALL):
        ast.parse(example)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment for scripts whose Python only writes down what it is to run, in the file WRITTEN."""
    environment = tmp_path_factory.mktemp("stand-in")
    python = environment / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/usr/bin/env bash\n[[ $1 == -c ]] || printf "%s\\n" "$@" >>"$WRITTEN"\n')
    python.chmod(0o700)
    return environment


@pytest.mark.parametrize("name", names_of(SCRIPTS))
def test_every_script_prints_its_usage(name: str, stand_in: Path, tmp_path: Path) -> None:
    """By itself, or by the module that it runs."""
    written = tmp_path / "written"
    answer = subprocess.run(
        [HOME / name, "--help"],
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
        env={**os.environ, "HOLDFAST_VENV": str(stand_in), "WRITTEN": str(written)},
    )
    assert answer.returncode == 0, answer.stderr
    usage = answer.stdout
    if written.exists():
        isolated, by_name, module, *arguments = written.read_text().splitlines()
        assert (isolated, by_name) == ("-P", "-m")
        status, usage, errors = printed(module, arguments, tmp_path)
        assert status == 0, errors

    assert "usage" in usage.lower()


def test_a_module_that_fails_or_is_missing_does_not_print_its_usage(tmp_path: Path) -> None:
    status, usage, errors = printed("tests.no_such_module", ["--help"], tmp_path)
    assert (status, usage) == (1, "") and "No module named tests.no_such_module" in errors
    status, usage, errors = printed("tests.sim.campaign", ["--no-such-option"], tmp_path)
    assert (status, usage) == (2, "") and "--no-such-option" in errors


def test_the_table_of_scripts_lists_each_script_once() -> None:
    rows = re.findall(
        r"^\| `(scripts/[\w-]+\.sh)` \| .+ \|$", (HOME / "docs/tools.md").read_text(), re.MULTILINE
    )

    assert sorted(rows) == names_of(SCRIPTS)


def test_the_page_of_tests_names_each_long_one_beside_what_runs_in_its_place() -> None:
    rows = re.findall(r"^\| `--long (\w+)` \| `(test_\w+)` \| .+ \|$", TESTING.read_text(), re.MULTILINE)
    long = [
        (path.relative_to(HOME / "tests").parts[0], name)
        for path in (HOME / "tests").rglob("test_*.py")
        for name in LONG.findall(path.read_text())
    ]

    assert sorted(rows) == sorted(long)


def test_every_module_has_a_docstring() -> None:
    modules = [module for package in PACKAGES for module in sorted(package.rglob("*.py"))]

    silent = [
        str(module.relative_to(HOME))
        for module in modules
        if not ast.get_docstring(ast.parse(module.read_text()))
    ]

    assert not silent


def test_every_folder_of_python_files_is_a_package() -> None:
    folders = {module.parent for package in PACKAGES for module in package.rglob("*.py")}

    assert not [str(folder.relative_to(HOME)) for folder in folders if not (folder / "__init__.py").exists()]


def test_the_page_of_dependencies_lists_exactly_the_required_packages() -> None:
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    required = {re.split(r"[<>=!~\[ ]", line)[0] for text in lists for line in text.split("\n") if line}

    explained = set(
        re.findall(r"^\| `([\w.-]+)` ", (HOME / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    )

    assert explained == required


def test_scripts_ask_only_for_packages_that_every_installation_has() -> None:
    """Those that depend on the processor or on an extra for tests would be missing elsewhere."""
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    lists = config["options"]["install_requires"], config["options.extras_require"]["server"]
    always = {re.split(r"[<>=]", line)[0] for text in lists for line in text.split("\n") if ";" not in line}
    (modules,) = re.findall(
        r"^HOLDFAST_MODULES=\((.*)\)$", (HOME / "scripts/common.sh").read_text(), re.MULTILINE
    )

    named_otherwise = {"snappy": "python-snappy"}
    asked = {named_otherwise.get(module, module) for module in modules.split()}
    assert asked and asked <= always
