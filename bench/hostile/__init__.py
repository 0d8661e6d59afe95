"""What bench/strangers, bench/soak and bench/neighbours share: frames, a client, attacks, upstreams, servers."""
