"""The optional C extension, which setup.cfg cannot declare: built if a compiler is available."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("protocol._record_codec", ["protocol/_record_codec.c"], optional=True)])
