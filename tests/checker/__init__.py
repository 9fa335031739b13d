"""The checker of histories: each rule finds a wrong history, and accepts one that only looks wrong."""
