"""The znodes of Kafka's layout: path, encoder and decoder of each, in one file.

Values and bytes only: nothing here reads or writes a znode.
"""
