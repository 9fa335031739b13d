"""Small programs that do something real: to be run, read and copied from."""
