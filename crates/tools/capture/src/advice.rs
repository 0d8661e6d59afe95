//! Recommended change for each cause of time.

use crate::summary::{HELLO_RETRY, OLD_VERSION};
use crate::waits::Cause;

/// Name of a row of the summary, and the recommended change. `has_tls`: connections with TLS have a relevant part of the time.
pub(crate) fn advice(index: usize, has_tls: bool) -> (&'static str, &'static str) {
    let cause = match index {
        HELLO_RETRY => {
            return (
                "HelloRetryRequest (part of round trips)",
                "accept a group for which clients send key shares: X25519MLKEM768, X25519, P-256",
            );
        }
        OLD_VERSION => return ("TLS 1.2 (part of round trips)", "enable TLS 1.3, and tickets for TLS 1.2"),
        _ => Cause::ALL[index],
    };
    match cause {
        Cause::RoundTrip if has_tls => {
            ("round trips", "reuse connections, resume sessions, serve closer to clients")
        }
        Cause::RoundTrip => ("round trips", "reuse connections, serve closer to clients"),
        Cause::Server if has_tls => {
            ("server", "profile the server; for handshakes: ECDSA keys, more workers")
        }
        Cause::Server => ("server", "profile the server"),
        Cause::Client if has_tls => ("client", "examine the client: certificate checks, slow devices"),
        Cause::Client => ("client", "examine the client: slow devices"),
        // No change: the time between requests is the client's own, and not lost.
        Cause::Waiting => ("waiting for requests", ""),
        Cause::LostSyn => {
            ("lost SYN", "check drops and accept queue of the server (ListenOverflows), firewalls")
        }
        Cause::Timeout => {
            ("retransmission timeout", "find the loss on the path; enable SACK and RACK-TLP on senders")
        }
        Cause::FastRetransmission => ("fast retransmission", "find the loss on the path; use BBR or pacing"),
        Cause::TailLossProbe => ("tail loss probe", "find the loss on the path"),
        Cause::Reordering => {
            ("reordering or earlier loss", "record nearer to the sender to distinguish both")
        }
        Cause::CongestionWindow if has_tls => {
            ("congestion window", "initial window of 10 or more; shorter chains; no slow start after idle")
        }
        Cause::CongestionWindow => {
            ("congestion window", "initial window of 10 or more; no slow start after idle")
        }
        Cause::DelayedAck => ("delayed acknowledgement", "set TCP_NODELAY, or write a message at once"),
        Cause::ClientWindow => {
            ("client's receive window", "the client reads slowly; check its receive buffer")
        }
        Cause::ServerWindow => ("server's receive window", "raise tcp_rmem of the server, or read faster"),
    }
}
