"""Who a client is, and what it may do: authentication in `sasl`, access control lists beside it.

Here belongs what compiles the lists and decides by them, as Kafka's AclAuthorizer does, and what clients may
ask and alter about them. The lists themselves are in ZooKeeper (`coordinator.cluster.acls`). Where handlers
ask is no affair of this room: they know an authorizer by what it answers. Bytes and connections are in
`broker.network`.
"""
