"""Known bugs, by the room of the code that they mutate."""
