"""The optional C extensions, which setup.cfg cannot declare: built if a compiler is available.

They use only what every CPython from 3.11 on promises to keep (the limited API), so that one wheel serves
all of them. Only builds of CPython without the GIL need extensions of their own. If HOLDFAST_PURE_PYTHON is
set, the wheel has no extension, and installs on every platform.
"""

import os
import sysconfig

from setuptools import Extension, setup

NAMES = ("_arrow_columns", "_compaction", "_key_hash", "_record_codec")
IS_PURE = bool(os.environ.get("HOLDFAST_PURE_PYTHON"))
IS_LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[]
    if IS_PURE
    else [
        Extension(
            f"holdfast_log.protocol.{name}",
            [f"holdfast_log/protocol/{name}.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if IS_LIMITED else [],
            py_limited_api=IS_LIMITED,
            optional=True,
        )
        for name in NAMES
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_LIMITED and not IS_PURE else {},
)
