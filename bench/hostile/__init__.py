"""Shared code of bench/strangers, bench/soak and bench/neighbours: frames, a client, attacks, upstreams, servers."""
