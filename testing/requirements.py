"""Says in one line which packages are missing. Imports none of them."""

from __future__ import annotations

from importlib.util import find_spec

_SERVER = ("twisted", "kazoo")


def require_server(what: str) -> None:
    """Raise ImportError, which says what to install, if `what` lacks packages of the extra `server`."""
    missing = [package for package in _SERVER if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"{what} needs {' and '.join(missing)}, which this Python does not have: "
            "pip install 'holdfast-log[server]'"
        )
