"""The ZooKeeper client: the interface that all other code uses, and its implementation on kazoo.

This folder has sessions, requests, watches and the queue between threads. The content of znodes is in
`coordinator.znodes`.
"""
