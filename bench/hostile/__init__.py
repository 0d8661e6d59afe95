"""Hostile clients and upstreams: frames, a client, attacks, mutations, crowds, and the servers that are compared."""
