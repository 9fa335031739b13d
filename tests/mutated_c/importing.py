"""A plugin of pytest that has extensions imported from other files: `-p tests.mutated_c.importing`.

The environment variable HOLDFAST_EXTENSIONS names them, in JSON: the file by the module's full name. The run
fails, with the status `NOT_IMPORTED`, if one of them was not imported from there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

import pytest

VARIABLE = "HOLDFAST_EXTENSIONS"
NOT_IMPORTED = 99
REPLACED: dict[str, str] = json.loads(os.environ.get(VARIABLE, "{}"))
"""The files of extensions that are imported in place of those of the checkout, by the modules' full names."""


class _Finder:
    """Finds the extensions in their files."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = REPLACED.get(name)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


sys.meta_path.insert(0, _Finder)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if any(getattr(sys.modules.get(name), "__file__", None) != file for name, file in REPLACED.items()):
        session.exitstatus = NOT_IMPORTED
