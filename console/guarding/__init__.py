"""Who may see a page, and who may change something: addresses, host names, origins, visitors, logins."""
