"""Example programs on real data, to run, read and copy from. Nothing else imports them."""
