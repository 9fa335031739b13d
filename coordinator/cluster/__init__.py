"""A broker's membership in the cluster: ids, registration, election of the controller, dynamic configs.

The decisions of the elected controller are in `coordinator.controller`.
"""
