"""The optional C extensions, which setup.cfg cannot declare: built if a compiler is available."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"holdfast_log.protocol.{name}", [f"protocol/{name}.c"], optional=True)
        for name in ("_arrow_columns", "_compaction", "_key_hash", "_record_codec")
    ]
)
