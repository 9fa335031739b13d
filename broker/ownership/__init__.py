"""One writer, one reader: who owns which resource, and what that forbids to everybody else."""
