"""Known bugs, one file for each part of the code that they mutate."""
