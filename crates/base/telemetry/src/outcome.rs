//! Outcomes of handshakes and requests, under the same names in logs and metrics.

/// Defines a public enum whose variants have a name for logs and labels: with the list `ALL`, the method `name` and `Display`.
#[macro_export]
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

            /// Name of the value in logs and metric labels.
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

named! {
    /// The kind of listener of a connection.
    Listening {
        /// HTTPS.
        Https = "https",
        /// Plain HTTP, which is redirected.
        Http = "http",
        /// TCP, forwarded as bytes.
        Tcp = "tcp",
    }
}

named! {
    /// Kind of a session.
    Resumption {
        /// A full handshake, with a key operation.
        Full = "full",
        /// TLS 1.2, by session ID.
        SessionId = "session-id",
        /// TLS 1.2, by session ticket.
        Ticket = "ticket",
        /// TLS 1.3, by pre-shared key (`pre_shared_key`).
        Psk = "psk",
        /// TLS 1.3, by pre-shared key, and the client's early data was accepted.
        EarlyData = "0-rtt",
    }
}

named! {
    /// Reason for which a session that the client offered was not resumed.
    ResumptionFailure {
        /// The session is unknown, or no longer stored.
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
        /// The early data was accepted.
        Accepted = "accepted",
        /// The host takes none.
        Disabled = "disabled",
        /// The session it came with was not resumed.
        NotResumed = "not-resumed",
        /// The session was resumed, but its age differs from the client's value, or the suite or protocol has
        /// changed.
        Unsuitable = "unsuitable",
    }
}

named! {
    /// Treatment of a request that arrived before the end of its handshake (RFC 8470).
    EarlyRequest {
        /// Answered at once; an upstream received `Early-Data: 1`.
        Forwarded = "forwarded",
        /// Delayed until the end of the handshake, as RFC 8470 section 3 permits.
        Held = "held",
    }
}

named! {
    /// Cause of the end of a connection or stream after a switch of protocols, such as a WebSocket.
    UpgradedEnd {
        /// The client ended first, or went away.
        ClientClosed = "client-closed",
        /// The upstream ended first.
        UpstreamClosed = "upstream-closed",
        /// Neither side sent anything for `timeouts.upgraded` of the upstream.
        IdleTimeout = "idle-timeout",
        /// The connection to the upstream failed.
        Error = "error",
        /// The drain of brisk ended before the connection.
        Drain = "drain",
    }
}

named! {
    /// Outcome of a TCP connection whose bytes are forwarded, a `[[tcp]]`.
    StreamEnd {
        /// Both directions ended, the client's first.
        ClientClosed = "client-closed",
        /// Both directions ended, the upstream's first.
        UpstreamClosed = "upstream-closed",
        /// The connection to the client was reset or failed.
        ClientReset = "client-reset",
        /// The connection to the upstream was reset or failed.
        UpstreamReset = "upstream-reset",
        /// Neither side sent anything for `idle_timeout`.
        IdleTimeout = "idle-timeout",
        /// The connection was idle, and its slot was needed for another one.
        Evicted = "evicted",
        /// The drain of brisk ended before the connection.
        Drain = "drain",
        /// No server of the upstream accepted a connection.
        Connect = "connect",
        /// No server of the upstream accepted a connection in time.
        ConnectTimeout = "connect-timeout",
        /// All servers of the upstream have reached `pool.max_connections`.
        ConnectionLimit = "connection-limit",
        /// The upstream has no server.
        NoServer = "no-server",
        /// `allow` and `deny` do not permit the address of the client.
        ClientAddress = "client-address",
    }
}

impl StreamEnd {
    /// The [`Side`] responsible for an unusual end; `None` for [`Self::ClientClosed`], [`Self::UpstreamClosed`],
    /// [`Self::IdleTimeout`] and [`Self::Evicted`].
    pub const fn side(self) -> Option<Side> {
        match self {
            Self::ClientClosed | Self::UpstreamClosed | Self::IdleTimeout | Self::Evicted => None,
            Self::ClientReset | Self::ClientAddress => Some(Side::Client),
            Self::UpstreamReset | Self::Connect | Self::ConnectTimeout => Some(Side::Upstream),
            Self::Drain | Self::ConnectionLimit | Self::NoServer => Some(Side::Internal),
        }
    }
}

named! {
    /// Side responsible for an error.
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
    /// Outcome of a handshake.
    HandshakeOutcome {
        /// The handshake succeeded.
        Complete = "complete",
        /// The client closed or reset the connection.
        ClientClosed = "client-closed",
        /// The handshake exceeded its timeout.
        TimedOut = "timed-out",
        /// The slot was needed for another connection: at the limit `max_connections`, or without free descriptors or memory.
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
        /// Validation by an ACME authority with tls-alpn-01, which ends with the handshake. The connection never
        /// carries a request.
        Challenge = "acme-challenge",
        /// No certificate is verifiable for the client, or the host has none yet.
        NoCertificate = "no-certificate",
        /// The client requested a server name that is not served.
        UnknownName = "unknown-name",
        /// Client and server have no version, suite, group or application protocol (ALPN) in common.
        NothingInCommon = "nothing-in-common",
        /// The client offers TLS 1.2 with RSA key exchange only.
        RsaKeyExchange = "rsa-key-exchange",
        /// The client's certificate is missing or not trusted.
        ClientCertificate = "client-certificate",
        /// The client refused with an alert (RFC 8446 section 6).
        Alert = "alert",
        /// The client broke the protocol.
        ProtocolError = "protocol-error",
        /// The client has reached its limit of connections or its rate limit, or the process is overloaded.
        Limited = "limited",
        /// The key operation failed or was not answered in time.
        KeyOperation = "key-operation",
        /// A fault in brisk.
        Internal = "internal",
    }
}

named! {
    /// Reason for which bytes of a client were refused before they became a request.
    MalformedReason {
        /// The request line, or the end of a line, is not HTTP.
        Head = "head-syntax",
        /// The name of a header is none.
        HeaderName = "header-name",
        /// The value of a header has bytes that are not permitted.
        HeaderValue = "header-value",
        /// The method or the target is none.
        Target = "target",
        /// The target is too long.
        TargetTooLong = "target-too-long",
        /// The head has too many bytes or headers.
        HeadTooLarge = "head-too-large",
        /// A line of the head ends with a bare line feed.
        LineFeed = "line-feed",
        /// `Content-Length` is not one number, or differs from the length of the body.
        Length = "content-length",
        /// The transfer coding leaves the end of the body unknown.
        TransferCoding = "transfer-coding",
        /// The preface of HTTP/2 (`PRI * HTTP/2.0`) on a connection over HTTP/1.1.
        Http2 = "http2-preface",
        /// The fields of HTTP/2 or HTTP/3 are no request (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2).
        Fields = "malformed-fields",
    }
}
