"""The optional C extensions, which setup.cfg cannot declare: built if a compiler is available.

They are built for the CPython that builds them, which is fastest. Two environment variables choose other
wheels: HOLDFAST_LIMITED_API has the extensions use only what every CPython from 3.11 on promises to keep, so
that one wheel serves all of them, except builds without the GIL. HOLDFAST_PURE_PYTHON leaves them out: that
wheel installs on every platform.
"""

import os
import sys

from setuptools import Extension, setup

MODULES = (
    "broker.log._known_reads",
    "broker.log._segment_append",
    "broker.replication._several_fetch",
    "broker.replication._usual_append",
    "broker.replication._usual_fetch",
    "broker.requests._usual_dispatch",
    "protocol._arrow_columns",
    "protocol._compaction",
    "protocol._fetch_codec",
    "protocol._key_hash",
    "protocol._produce_codec",
    "protocol._record_codec",
    "protocol._record_validation",
    "protocol._send_path",
    "protocol._turns",
    "protocol._wire",
)
PARTS = ("plain_batch", "reading", "record_validation", "request_header", "slots")
HEADERS = [
    *(f"holdfast_log/protocol/_{name}.h" for name in PARTS),
    "holdfast_log/broker/log/_segment_append.h",
    "holdfast_log/broker/replication/_fetching.h",
]
IS_PURE = bool(os.environ.get("HOLDFAST_PURE_PYTHON"))
IS_LIMITED = bool(os.environ.get("HOLDFAST_LIMITED_API"))
LINK_ARGUMENTS = ["-Wl,--no-as-needed", "-lc"] if sys.platform.startswith("linux") else []
"""Has each extension name the C library, also one that calls nothing in it: without that, auditwheel does not
know which Linux a wheel with the limited API is for."""

setup(
    ext_modules=[]
    if IS_PURE
    else [
        Extension(
            f"holdfast_log.{module}",
            [f"holdfast_log/{module.replace('.', '/')}.c"],
            depends=HEADERS,
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if IS_LIMITED else [],
            py_limited_api=IS_LIMITED,
            extra_link_args=LINK_ARGUMENTS,
            optional=True,
        )
        for module in MODULES
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_LIMITED and not IS_PURE else {},
)
