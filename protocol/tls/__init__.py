"""TLS as clients and brokers set it up: key stores and trust stores, cipher suites, contexts."""
