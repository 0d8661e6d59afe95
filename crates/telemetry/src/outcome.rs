//! How handshakes and requests went, as values that logs and metrics name alike.

/// Defines an enum whose variants have a name for logs and labels.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $type {
            /// Every value, in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in logs and as a label of metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use named;

named! {
    /// The kind of listener of a connection.
    Listening {
        /// HTTPS.
        Https = "https",
        /// Plain HTTP, which is redirected.
        Http = "http",
    }
}

named! {
    /// How a session came about.
    Resumption {
        /// A full handshake, with a key operation.
        Full = "full",
        /// TLS 1.2, by session ID.
        SessionId = "session-id",
        /// TLS 1.2, by session ticket.
        Ticket = "ticket",
        /// TLS 1.3, by pre-shared key.
        Psk = "psk",
        /// TLS 1.3, by pre-shared key, and the client's early data was accepted.
        EarlyData = "0-rtt",
    }
}

named! {
    /// Why a session that the client wished to resume was not resumed.
    ResumptionFailure {
        /// No such session, or no longer.
        NoSession = "no-session",
        /// The ticket was sealed with a key that is not on the keyring.
        UnknownKey = "unknown-key",
        /// The ticket is older than tickets live.
        Expired = "expired",
        /// The ticket or the stored session is forged or damaged.
        Forged = "forged",
        /// The session store did not answer in time.
        StoreLate = "store-late",
        /// The session store is out of order.
        StoreDown = "store-down",
        /// The session was taken before: early data sent twice is a replay.
        Used = "used",
        /// The session was made for another name, other demands on clients, or another suite or version.
        Unsuitable = "unsuitable",
    }
}

named! {
    /// Outcome of a client's early data (RFC 8446 section 4.2.10).
    EarlyData {
        /// It was accepted.
        Accepted = "accepted",
        /// The host takes none.
        Disabled = "disabled",
        /// The session it came with was not resumed.
        NotResumed = "not-resumed",
        /// The session was resumed, but its age is not what the client said, or suite or protocol have changed.
        Unsuitable = "unsuitable",
    }
}

named! {
    /// How a request that came before the end of its handshake was treated (RFC 8470).
    EarlyRequest {
        /// It was answered at once; an upstream received `Early-Data: 1`.
        Forwarded = "forwarded",
        /// It waited for the end of the handshake.
        Held = "held",
    }
}

named! {
    /// Who is to blame for an error.
    Side {
        /// The client: its request was wrong, or it went away.
        Client = "client",
        /// The upstream: not there, too slow, or its response was wrong.
        Upstream = "upstream",
        /// brisk itself.
        Internal = "internal",
    }
}

named! {
    /// How a handshake ended.
    HandshakeOutcome {
        /// It succeeded.
        Complete = "complete",
        /// The client closed or reset the connection.
        ClientClosed = "client-closed",
        /// It took longer than allowed.
        TimedOut = "timed-out",
        /// Its place was needed for another connection.
        Evicted = "evicted",
        /// The first bytes were no TLS.
        NotTls = "not-tls",
        /// The first bytes were an HTTP request.
        PlainHttp = "plain-http",
        /// The `ClientHello` exceeded its limit.
        TooLarge = "too-large",
        /// A message could not be parsed.
        Malformed = "malformed",
        /// A wrong PROXY protocol header came before it.
        ProxyProtocol = "proxy-protocol",
        /// It was an authority's check by tls-alpn-01, which ends with the handshake. Its connection never had a request.
        Challenge = "acme-challenge",
        /// No certificate fits what the client can verify, or the host has none yet.
        NoCertificate = "no-certificate",
        /// The client asked for a name that is not served here.
        UnknownName = "unknown-name",
        /// Client and server have no version, suite, group or application protocol in common.
        NothingInCommon = "nothing-in-common",
        /// The client's certificate is missing or not trusted.
        ClientCertificate = "client-certificate",
        /// The client refused with an alert.
        Alert = "alert",
        /// The client broke the protocol.
        ProtocolError = "protocol-error",
        /// The client has as many connections as allowed, or comes too often.
        Limited = "limited",
        /// The key operation failed or was not answered in time.
        KeyOperation = "key-operation",
        /// A fault in brisk.
        Internal = "internal",
    }
}
