"""TLS clients: the command of each, and the report about them."""
