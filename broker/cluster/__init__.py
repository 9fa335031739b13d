"""What this broker knows of the cluster: its identity, and brokers, topics and leaders from the controller.

Nothing here decides: the controller does (`coordinator/controller`).
"""
