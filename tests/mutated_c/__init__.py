"""Bugs that are put into the compiled code of the data path, one at a time, to see that tests fail with each.

A `Bug` names a text of a C source that occurs in it once, what is put in its place, the tests that must fail
then, and the extensions that are built from that source. `tables` has all of them. `building` copies the C
sources, puts the bug in and compiles the extensions into a directory of their own; the checkout and its
extensions stay as they are. `importing` is a plugin of pytest that has the tests import these extensions
instead. `hunting` runs the tests.

    scripts/mutate-compiled.sh --help
"""
