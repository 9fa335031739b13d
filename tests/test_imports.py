"""Packages import in one direction: broker from coordinator and clients, pipeline from clients, all from
protocol. The folders inside a package do not import each other in a circle. All of them are folders of
one package, holdfast_log, and are imported through it.

The tests read imports from the sources, so that imports in functions or under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

HOME = Path(__file__).parent.parent

MAY_IMPORT = {
    "protocol": set(),
    "clients": {"protocol"},
    "coordinator": {"protocol"},
    "broker": {"protocol", "clients", "coordinator"},
    "pipeline": {"clients", "protocol", "holdfast_log"},
    "holdfast_log": {"clients", "protocol"},
    "checker": {"protocol", "clients", "coordinator", "broker", "holdfast_log"},
    "console": {"clients", "protocol"},
    "command": {"protocol", "clients", "coordinator", "broker", "pipeline", "checker", "holdfast_log"},
    "testing": {"protocol", "clients", "coordinator", "broker", "holdfast_log"},
    "benchmarks": {"protocol", "clients", "coordinator", "broker", "pipeline", "holdfast_log"},
}
"""What each package may import besides itself; of holdfast_log its public names only."""

ONE_PACKAGE = "holdfast_log"
INSTALLED = set(MAY_IMPORT) - {ONE_PACKAGE, "benchmarks"}
"""The folders that are installed, and imported, as parts of the one package."""

# The broker shares the settings and the clock with the clients; the rest is for applications.
BROKER_MAY_IMPORT_OF_CLIENTS = (
    "clients.settings",
    "clients.references",
    "clients.config",
    "clients.boot_clock",
    "clients.tools.command_names",  # Of the programs that start brokers: what their user types.
)

TWISTED_ALLOWED_IN_COORDINATOR = (
    "twisted.internet.defer",
    "twisted.internet.interfaces",
    "twisted.logger",
    "twisted.python",
)
KAZOO_ROOM = "coordinator/zookeeper/kazoo_session.py"
REACTOR_ROOMS = ("broker/process/process.py", "broker/__main__.py", "benchmarks/transport.py")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, with the file and line that import it. Ours begin with a folder."""

    path: str
    line: int
    module: str

    @property
    def package(self) -> str:
        return self.path.split("/", 1)[0]

    @property
    def name(self) -> str:
        """The importing module's dotted name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def sources(package: str) -> list[Path]:
    return sorted((HOME / package).rglob("*.py"))


def imports_of(package: str) -> Iterator[Import]:
    for source in sources(package):
        yield from imports_in(str(source.relative_to(HOME)), source.read_text())


def imports_in(path: str, text: str) -> Iterator[Import]:
    """Every module that the source `text` of `path` imports; `from a import b` yields a.b."""
    for line, module in _imports(path, text):
        yield Import(path, line, _from_its_folder(module))


def _from_its_folder(module: str) -> str:
    """`module` without the name of the one package, unless it is one of that package's public names."""
    _, _, rest = module.partition(f"{ONE_PACKAGE}.")
    return rest if rest.partition(".")[0] in INSTALLED else module


def _imports(path: str, text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield node.lineno, name.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = module or ""
                if level:
                    folder = path.removesuffix(".py").split("/")[:-level]
                    base = ".".join([*folder, *([base] if base else [])])
                for name in names:
                    yield node.lineno, f"{base}.{name.name}"


def room_of(module: str) -> str:
    """The folder or file right under the package that `module` belongs to."""
    return ".".join(module.split(".")[:2])


def is_under(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_the_packages_allowed_to_it(package: str) -> None:
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package] - {package} | {"tests"}

    wrong = [str(found) for found in imports_of(package) if is_under(found.module, *forbidden)]

    assert not wrong


@pytest.mark.parametrize("package", ["broker", "clients", "console", "coordinator", "protocol"])
def test_the_folders_of_a_package_do_not_import_each_other_in_a_circle(package: str) -> None:
    arrows: dict[str, set[str]] = {}
    for found in imports_of(package):
        if is_under(found.module, package) and room_of(found.module) != room_of(found.name):
            arrows.setdefault(room_of(found.name), set()).add(room_of(found.module))

    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"these folders import each other in a circle: {error.args[1]}")


def test_every_folder_of_the_installed_package_is_a_link_to_the_one_beside_it() -> None:
    links = {path.name: path.readlink() for path in (HOME / ONE_PACKAGE).iterdir() if path.is_symlink()}

    assert links == {name: Path("..", name) for name in {*INSTALLED, "config"}}


def test_every_import_goes_through_the_one_package() -> None:
    """A folder imported by its bare name would be a second copy, which installations do not have."""
    wrong = [
        f"{path}:{line} imports {module}"
        for path in (*MAY_IMPORT, "tests", "docs")
        for source in sources(path)
        for line, module in _imports(str(source.relative_to(HOME)), source.read_text())
        if module.partition(".")[0] in INSTALLED
    ]

    assert not wrong


@pytest.mark.parametrize(
    "package", ["broker", "clients", "coordinator", "protocol", "pipeline", "checker", "console"]
)
def test_the_modules_of_a_package_do_not_import_each_other_in_a_circle(package: str) -> None:
    modules = {
        str(source.relative_to(HOME)).removesuffix(".py").replace("/", ".")
        for source in sources(package)
        if source.name != "__init__.py"
    }
    arrows: dict[str, set[str]] = {}
    for found in imports_of(package):
        imported = found.module if found.module in modules else found.module.rpartition(".")[0]
        if found.name in modules and imported in modules and imported != found.name:
            arrows.setdefault(found.name, set()).add(imported)

    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {error.args[1]}")


def test_every_top_level_package_is_in_the_table_of_imports() -> None:
    packages = {found.parent.name for found in HOME.glob("*/__init__.py")}

    assert packages == set(MAY_IMPORT) | {"tests"}


def test_the_broker_imports_little_from_the_clients() -> None:
    wrong = [
        str(found)
        for found in imports_of("broker")
        if is_under(found.module, "clients") and not is_under(found.module, *BROKER_MAY_IMPORT_OF_CLIENTS)
    ]

    assert not wrong


def test_only_one_file_imports_kazoo() -> None:
    wrong = [
        str(found)
        for package in MAY_IMPORT
        for found in imports_of(package)
        if is_under(found.module, "kazoo") and found.path != KAZOO_ROOM
    ]

    assert not wrong


@pytest.mark.parametrize("package", ["protocol", "clients", "holdfast_log", "pipeline", "console"])
def test_a_package_for_applications_does_not_import_twisted(package: str) -> None:
    wrong = [
        str(found) for found in imports_of(package) if is_under(found.module, "twisted", "zope", "autobahn")
    ]

    assert not wrong


def test_the_coordinator_imports_deferreds_but_no_network_of_twisted() -> None:
    wrong = [
        str(found)
        for found in imports_of("coordinator")
        if is_under(found.module, "twisted") and not is_under(found.module, *TWISTED_ALLOWED_IN_COORDINATOR)
    ]

    assert not wrong


def test_only_modules_that_wire_a_process_import_the_global_reactor() -> None:
    wrong = [
        str(found)
        for package in MAY_IMPORT
        for found in imports_of(package)
        if is_under(found.module, "twisted.internet.reactor") and found.path not in REACTOR_ROOMS
    ]

    assert not wrong


def test_importing_the_clients_loads_no_heavy_package() -> None:
    heavy = ["click", "rich", "pyarrow", "pandas", "numpy", "kazoo", "twisted", "pyspark"]
    code = (
        "import sys\n"
        "from holdfast_log import Producer, Consumer, Admin\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, timeout=300, check=False
    )

    assert (answer.stdout.strip(), answer.returncode) == ("[]", 0), answer.stderr


def test_imports_in_yields_every_form_of_import() -> None:
    text = (
        "import kazoo.client as k\n"
        "from twisted.internet import reactor\n"
        "from . import znodes\n"
        "from ..broker import app\n"
        "def late() -> None:\n"
        "    from holdfast_log.broker.log import segment\n"
    )

    found = [item.module for item in imports_in("coordinator/room.py", text)]

    assert sorted(found) == [
        "broker.app",
        "broker.log.segment",
        "coordinator.znodes",
        "kazoo.client",
        "twisted.internet.reactor",
    ]
