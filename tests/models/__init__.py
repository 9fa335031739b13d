"""Models of what the code under test stands on, shared by the tests of every package."""
