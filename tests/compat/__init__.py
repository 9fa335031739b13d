"""Other people's clients, unmodified, against a broker of ours."""
