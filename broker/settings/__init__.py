"""The settings of brokers and topics: declared as rows, read from files, changed through ZooKeeper while
brokers run.

Code that uses a setting declares it in a settings group of its own folder (`broker.setting_groups`).
"""
