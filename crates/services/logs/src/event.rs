//! Facts of one line of the access log.

use std::net::SocketAddr;

use brisk_telemetry::{ConnectionRecord, HandshakeOutcome, MalformedRecord, RequestRecord, StreamRecord};

/// The facts of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    Request(&'a RequestRecord<'a>),
    Handshake(&'a ConnectionRecord, HandshakeOutcome),
    /// A malformed request, with the number of lines that were left out before this one.
    Malformed(&'a MalformedRecord<'a>, u64),
    Stream(&'a StreamRecord<'a>),
}

impl<'a> Event<'a> {
    /// Name of the kind of line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Handshake(..) => "handshake",
            Self::Malformed(..) => "malformed",
            Self::Stream(_) => "tcp",
        }
    }

    pub(crate) fn connection(&self) -> &'a ConnectionRecord {
        match *self {
            Self::Request(request) => request.connection,
            Self::Handshake(connection, _) => connection,
            Self::Malformed(request, _) => request.connection,
            Self::Stream(stream) => stream.connection,
        }
    }

    /// Address of the client. The port is `0` if it is unknown.
    pub(crate) fn client(&self) -> SocketAddr {
        match self {
            Self::Request(request) => request.client,
            Self::Handshake(..) | Self::Malformed(..) | Self::Stream(_) => self.connection().client,
        }
    }

    /// Whether the line has the milestones of its connection.
    pub(crate) fn begins_connection(&self) -> bool {
        match self {
            Self::Request(request) => request.connection.requests == 1,
            Self::Handshake(..) | Self::Stream(_) => true,
            Self::Malformed(..) => false,
        }
    }
}
