"""What stands in ZooKeeper: the path of every znode of Kafka's layout, and what encodes and decodes its data.

Values and bytes only: nothing here reads or writes a znode.
"""
