//! The requests of a connection, and their answers.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_keyless::frame::{VERSION, put_result};
use brisk_keyless::{Answer, ErrorCode, Hello, Request, Scheme, is_asn1};
use brisk_keys::{KeyId, KeyOperation, PendingOperation};
use bytes::Bytes;

use super::{Connection, OUTGOING};
use crate::metrics::Refused;

/// Keys that can have numbers on a connection.
const MOST_KEYS: u16 = 4096;

/// Refusals of what no gateway asks for, whatever its own clients do, after which the connection ends.
const MOST_FAULTS: u32 = 100;

/// The longest time that an operation may wait here, whatever its client says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Connection {
    pub(super) fn take(&mut self, request: Request) {
        let Some(limits) = self.limits else {
            return match request {
                Request::Hello(hello) if hello.version > 0 => self.greet(hello),
                _ => self.end("the first frame is not a hello of a version from 1 on"),
            };
        };
        match request {
            Request::Hello(_) => self.end("a second hello"),
            Request::Key { number, .. } if number >= u32::from(limits.keys) => {
                self.end("a number of a key beyond the limit");
            }
            Request::Key { number, key } => self.number(number, key),
            Request::Sign { operation, .. } if operation == 0 || self.operations.has(operation) => {
                self.end("an operation whose number is 0, or that of another under way");
            }
            Request::Sign { operation, key, scheme, remaining, message } => {
                self.sign(operation, key, scheme, remaining, message);
            }
            Request::Decrypt { operation } => {
                self.count_operation();
                self.refuse(operation, ErrorCode::OperationNotAllowed, None, "this server does not decrypt");
            }
            Request::Cancel { operation } => self.operations.cancel(operation),
            Request::Ping { number, bytes } => Answer::Pong { number, bytes }.write(&mut self.outgoing),
        }
    }

    fn greet(&mut self, hello: Hello) {
        let limits = Hello {
            version: hello.version.min(VERSION),
            operations: hello.operations.min(self.live.operations).max(1),
            keys: hello.keys.clamp(1, MOST_KEYS),
        };
        self.limits = Some(limits);
        Answer::Hello(limits).write(&mut self.outgoing);
        self.follow_drain();
    }

    /// Gives a key a number. Whether it may be used is decided with each operation again, since settings change.
    fn number(&mut self, number: u32, key: KeyId) {
        let place = number as usize;
        if self.keys.len() <= place {
            self.keys.resize(place + 1, None);
        }
        self.keys[place] = Some(key);
        let may_use = self.live.policy.client(&self.client).is_some_and(|client| client.may_use(key));
        let state = if may_use {
            self.live.keystore.algorithm(key).ok_or(ErrorCode::UnknownKey)
        } else {
            Err(ErrorCode::KeyNotAllowed)
        };
        if let Err(code) = state {
            self.note_refusal(code, Some(key), "asked for by its fingerprint");
        }
        Answer::Key { number, state }.write(&mut self.outgoing);
    }

    fn sign(&mut self, number: u32, key: u32, scheme: Scheme, remaining: Duration, message: Bytes) {
        self.count_operation();
        let key = self.keys.get(key as usize).copied().flatten();
        match self.begin(key, scheme, remaining, message) {
            Ok((pending, deadline)) => self.operations.add(number, pending, deadline),
            Err((code, detail)) => {
                self.refuse(number, code, key, detail);
                self.note_fault(code, key, detail);
            }
        }
    }

    fn count_operation(&self) {
        self.worker.shared.figures.operations.fetch_add(1, Ordering::Relaxed);
    }

    fn begin(
        &self,
        key: Option<KeyId>,
        scheme: Scheme,
        remaining: Duration,
        message: Bytes,
    ) -> Result<(PendingOperation, Instant), (ErrorCode, &'static str)> {
        let key = key.ok_or((ErrorCode::UnknownKey, "no key has this number"))?;
        let client = self.live.policy.client(&self.client);
        let client = client.ok_or((ErrorCode::UnknownClient, "no client of this name is configured"))?;
        if !client.may_use(key) {
            return Err((ErrorCode::KeyNotAllowed, "the client may not use this key"));
        }
        let algorithm = self.live.keystore.algorithm(key);
        let algorithm = algorithm.ok_or((ErrorCode::UnknownKey, "the server has no such key"))?;
        client.check(key, algorithm, scheme, &message).map_err(|code| (code, explained(code, &message)))?;
        if remaining.is_zero() {
            return Err((ErrorCode::DeadlinePassed, "no time is left for it"));
        }
        let deadline = Instant::now() + remaining.min(LONGEST_WAIT);
        Ok((self.live.engine.submit(KeyOperation::sign(key, scheme, message, deadline)), deadline))
    }

    /// Writes the results of operations that have ended, while there is room.
    pub(super) fn collect(&mut self, context: &mut Context<'_>) {
        while self.outgoing.len() < OUTGOING {
            let Poll::Ready((number, ended)) = self.operations.poll_ended(context) else { return };
            match ended {
                Ok(Ok(result)) => put_result(&mut self.outgoing, number, &result),
                Ok(Err(error)) => self.refuse(number, ErrorCode::from(&error), None, &error.to_string()),
                Err(code) => {
                    Answer::Error { operation: number, code, text: String::new() }.write(&mut self.outgoing);
                }
            }
        }
    }

    /// Answers with an error, counts and logs it.
    pub(super) fn refuse(&mut self, operation: u32, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        let text = detail.to_owned();
        Answer::Error { operation, code, text }.write(&mut self.outgoing);
        self.note_refusal(code, key, detail);
    }

    fn note_refusal(&self, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        let refused = Refused { client: &self.client, peer: self.peer, code, key, detail };
        self.worker.shared.figures.refused(&refused);
    }

    /// Ends a connection that goes on asking for what is not of TLS.
    fn note_fault(&mut self, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        if !is_fault(code, key, detail) {
            return;
        }
        self.faults += 1;
        if self.faults >= MOST_FAULTS {
            self.end("too much was refused");
        }
    }

    /// Ends the connection of a client that may do nothing here any more.
    pub(super) fn dismiss(&mut self, reason: &str) {
        if !self.ending {
            self.ending = true;
            self.refuse(0, ErrorCode::UnknownClient, None, reason);
        }
    }

    /// Ends the connection with an error.
    pub(super) fn end(&mut self, reason: &str) {
        if !self.ending {
            self.ending = true;
            self.refuse(0, ErrorCode::Protocol, None, reason);
        }
    }
}

/// Whether no gateway asks for such a thing. The clients of one can have it ask for a key or an operation that it may not use, and can
/// choose their random so that the message is a value of ASN.1.
fn is_fault(code: ErrorCode, key: Option<KeyId>, detail: &str) -> bool {
    match code {
        ErrorCode::Shape => detail != ASN1,
        ErrorCode::Scheme => true,
        ErrorCode::UnknownKey => key.is_none(),
        _ => false,
    }
}

const ASN1: &str = "the message is of TLS 1.2, and a value of ASN.1 as well";

/// What a refusal by the policy means.
fn explained(code: ErrorCode, message: &[u8]) -> &'static str {
    match code {
        ErrorCode::Shape if is_asn1(message) => ASN1,
        ErrorCode::Shape => "the message is no content of a TLS signature",
        ErrorCode::OperationNotAllowed => "the client may not have such a message signed",
        ErrorCode::Scheme => "the key, or this version of TLS, has no such scheme",
        ErrorCode::Rate => "the client asks more often than it may",
        _ => "the client may not use this key",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_of_an_honest_gateway_cause_is_no_fault_of_it() {
        let key = Some(KeyId([1; 32]));
        let asn1 = [&[0x31, 2, 4, 0][..]].concat();
        assert!(!is_fault(ErrorCode::Shape, key, explained(ErrorCode::Shape, &asn1)));
        assert!(is_fault(ErrorCode::Shape, key, explained(ErrorCode::Shape, b"digest")));
        for code in [ErrorCode::UnknownKey, ErrorCode::KeyNotAllowed, ErrorCode::OperationNotAllowed] {
            assert!(!is_fault(code, key, ""), "{code}");
        }
        assert!(is_fault(ErrorCode::UnknownKey, None, "") && is_fault(ErrorCode::Scheme, key, ""));
    }
}
