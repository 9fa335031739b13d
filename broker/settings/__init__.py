"""The settings of brokers and topics: declared as rows, read from files, altered through ZooKeeper while
brokers run.

The room that goes by a setting has it in a settings group (`broker.setting_groups`).
"""
