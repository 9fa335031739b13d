"""The catalog of all APIs: what the modules of `protocol.messages` declare, by API key."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from holdfast_log.protocol import messages
from holdfast_log.protocol.api import Api, Request


class _Apis(Mapping[int, Api]):
    """Every API by its key, imported on first use, so that a client does not import APIs that it never
    sends."""

    def __init__(self) -> None:
        self._rows: dict[int, Api] = {}

    def _loaded(self) -> dict[int, Api]:
        if not self._rows:
            import pkgutil  # Slow to import; a client that sends requests looks up no API by its key.

            modules = [
                importlib.import_module(f"{messages.__name__}.{module.name}")
                for module in pkgutil.iter_modules(messages.__path__)
            ]
            apis = [api for module in modules for api in _apis_in(vars(module))]
            self._rows = {api.key: api for api in sorted(apis, key=lambda api: api.key)}
        return self._rows

    def __getitem__(self, key: int) -> Api:
        return self._loaded()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())


def _apis_in(namespace: Mapping[str, object]) -> list[Api]:
    return [
        value.api
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, Request) and value is not Request
    ]


APIS: Mapping[int, Api] = _Apis()
