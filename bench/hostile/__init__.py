"""Shared code of bench/strangers, bench/soak, bench/neighbours and bench/live-fuzz: frames, a client, attacks, mutations, upstreams,
servers."""
