//! [`RequestLog`], the interface of the access log.

use std::fmt;

use crate::outcome::HandshakeOutcome;
use crate::record::{ConnectionEnd, ConnectionRecord, MalformedRecord, RequestRecord, StreamRecord};

/// Receiver of each [`RequestRecord`], and of each [`ConnectionRecord`] that failed or ended. Shared by all workers, which call
/// it, so no method waits for a target but [`close`](Self::close).
pub trait RequestLog: fmt::Debug + Send + Sync + 'static {
    /// Logs a request whose response has ended. Well below 1 us for each output.
    fn log(&self, request: &RequestRecord<'_>);

    /// Names of the request headers that [`RequestRecord::headers`] must contain, in lower case.
    fn headers(&self) -> &[Box<str>];

    /// Logs a connection whose handshake failed with `outcome`.
    fn log_handshake(&self, connection: &ConnectionRecord, outcome: HandshakeOutcome);

    /// Logs a [`StreamRecord`]: a TCP connection that has ended.
    fn log_stream(&self, stream: &StreamRecord<'_>);

    /// Logs a malformed request, or counts it for later lines if there are too many.
    fn log_malformed(&self, request: &MalformedRecord<'_>);

    /// Exports the spans of a connection that has ended, if an output takes spans.
    fn log_connection(&self, connection: &ConnectionRecord, end: ConnectionEnd);

    /// Whether a trace that begins here is to be recorded. Without an output for spans, the upstream may decide.
    fn samples_trace(&self, trace: u128) -> bool;

    /// Opens files again before the next line, for log rotation after the old file was renamed, and tries receivers that are
    /// down at once. If a file cannot be opened, the old file stays in use and the reason is logged.
    fn reopen(&self);

    /// Ends the log after the remaining lines, for which it waits for at most two seconds.
    fn close(&self);
}
