"""Where a broker is built: every part is made here and connected to the others, and nothing is decided."""
