"""TLS on the broker's connections: its settings, handshakes, sockets, and whom a certificate names."""
