"""Access control lists on a broker: who may do what to which resource, decided as Kafka's AclAuthorizer does.

Here belongs what compiles the lists and decides by them, and what clients may ask and alter about them. The
lists themselves are in ZooKeeper (`coordinator.cluster.acls`). Where handlers ask is no affair of this room:
they know an authorizer by what it answers.
"""
