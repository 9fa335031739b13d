"""What makes a process a member of the cluster: its identity, its registration, its candidacy for controller,
the settings that all brokers share.

What the elected controller decides does not belong here: that is `coordinator.controller`.
"""
