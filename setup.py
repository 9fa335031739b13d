"""What setup.cfg cannot say: a part that is compiled where there is a compiler, and else left out."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("protocol._record_codec", ["protocol/_record_codec.c"], optional=True)])
