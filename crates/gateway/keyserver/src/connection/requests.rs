//! Requests of a connection, and their responses.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_keyless::frame::{VERSION, put_result};
use brisk_keyless::{ErrorCode, Hello, Request, Response, Scheme, is_asn1};
use brisk_keys::{KeyAlgorithm, KeyId, KeyOperation, PendingOperation};
use bytes::Bytes;

use super::{Connection, OUTGOING};
use crate::metrics::RefusedRequest;
use crate::policy::Client;

/// Maximum number of keys with a number on one connection.
const MOST_KEYS: u16 = 4096;

/// Number of refused requests after which the [`Connection`] ends. Only requests count that no honest gateway sends:
/// clients of a gateway cannot cause them.
const MOST_FAULTS: u32 = 100;

/// Maximum deadline of an operation. A longer deadline that the [`Client`] requests is reduced.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Connection {
    pub(super) fn take(&mut self, request: Request) {
        let Some(limits) = self.limits else {
            return match request {
                Request::Hello(hello) if hello.version > 0 => self.greet(hello),
                _ => self.end("the first frame is not a HELLO with version 1 or later"),
            };
        };
        match request {
            Request::Hello(_) => self.end("a second HELLO"),
            Request::Key { number, .. } if number >= u32::from(limits.keys) => {
                self.end("the key number exceeds the limit");
            }
            Request::Key { number, key } => self.number(number, key),
            // 0 stands for the connection itself in `ERROR` frames. A number in use would make two
            // results indistinguishable.
            Request::Sign { operation, .. } if operation == 0 || self.operations.has(operation) => {
                self.end(TAKEN);
            }
            Request::Sign { operation, key, scheme, remaining, message } => {
                let key = self.key(key);
                let begun = self.begin(key, scheme, remaining, message);
                self.answer(operation, key, begun);
            }
            Request::Decrypt { operation, .. } if operation == 0 || self.operations.has(operation) => {
                self.end(TAKEN);
            }
            Request::Decrypt { operation, key, remaining, ciphertext } => {
                let key = self.key(key);
                let begun = self.begin_decryption(key, remaining, ciphertext);
                self.answer(operation, key, begun);
            }
            Request::Cancel { operation } => self.operations.cancel(operation),
            Request::Ping { number, bytes } => Response::Pong { number, bytes }.write(&mut self.outgoing),
        }
    }

    fn greet(&mut self, hello: Hello) {
        let limits = Hello {
            version: hello.version.min(VERSION),
            // At least 1, because a client without any operation could never send a request.
            operations: hello.operations.min(self.live.operations).max(1),
            keys: hello.keys.clamp(1, MOST_KEYS),
        };
        self.limits = Some(limits);
        Response::Hello(limits).write(&mut self.outgoing);
        self.follow_drain();
    }

    /// Assigns a number to a key. Permission is checked again for each operation, because a reload may change it.
    fn number(&mut self, number: u32, key: KeyId) {
        let place = number as usize;
        if self.keys.len() <= place {
            // Bounded: `take` has compared the number with the limit of the client, at most `MOST_KEYS`.
            self.keys.resize(place + 1, None);
        }
        self.keys[place] = Some(key);
        let may_use = self.live.policy.client(&self.peer.client).is_some_and(|client| client.may_use(key));
        // Permission is checked first, so that a client cannot find out which other keys the server holds.
        let state = if may_use {
            self.live.keys.keystore.algorithm_anywhere(key).ok_or(ErrorCode::UnknownKey)
        } else {
            Err(ErrorCode::KeyNotAllowed)
        };
        if let Err(code) = state {
            self.note_refusal(code, Some(key), "requested by its fingerprint");
        }
        Response::Key { number, state }.write(&mut self.outgoing);
    }

    /// The key with this number.
    fn key(&self, number: u32) -> Option<KeyId> {
        self.keys.get(number as usize).copied().flatten()
    }

    /// Registers a started operation, or refuses it.
    fn answer(&mut self, number: u32, key: Option<KeyId>, begun: Result<Begun, Refusal>) {
        self.worker.shared.figures.operations.fetch_add(1, Ordering::Relaxed);
        match begun {
            Ok((pending, deadline)) => self.operations.add(number, pending, deadline),
            Err((code, detail)) => {
                self.refuse(number, code, key, detail);
                self.note_fault(code, key, detail);
            }
        }
    }

    /// The key and its algorithm, if the [`Client`] may use it.
    fn usable(&self, key: Option<KeyId>) -> Result<(&Client, KeyId, KeyAlgorithm), Refusal> {
        let key = key.ok_or((ErrorCode::UnknownKey, "no key has this number"))?;
        let client = self.live.policy.client(&self.peer.client);
        let client = client.ok_or((ErrorCode::UnknownClient, "no client of this name is configured"))?;
        if !client.may_use(key) {
            return Err((ErrorCode::KeyNotAllowed, "the client may not use this key"));
        }
        let algorithm = self.live.keys.keystore.algorithm_anywhere(key);
        Ok((client, key, algorithm.ok_or((ErrorCode::UnknownKey, "the server has no such key"))?))
    }

    fn begin(
        &self,
        key: Option<KeyId>,
        scheme: Scheme,
        remaining: Duration,
        message: Bytes,
    ) -> Result<Begun, Refusal> {
        let (client, key, algorithm) = self.usable(key)?;
        // Before the engine, which signs any message that it gets.
        client.check(key, algorithm, scheme, &message).map_err(|code| (code, explained(code, &message)))?;
        let deadline = deadline(remaining)?;
        Ok((self.live.keys.engine.submit(KeyOperation::sign(key, scheme, message, deadline)), deadline))
    }

    fn begin_decryption(
        &self,
        key: Option<KeyId>,
        remaining: Duration,
        ciphertext: Bytes,
    ) -> Result<Begun, Refusal> {
        let (client, key, algorithm) = self.usable(key)?;
        client.check_decryption(algorithm).map_err(|code| (code, undecrypted(code)))?;
        let deadline = deadline(remaining)?;
        Ok((self.live.keys.engine.submit(KeyOperation::decrypt(key, ciphertext, deadline)), deadline))
    }

    /// Writes the results of finished operations while there is room.
    pub(super) fn collect(&mut self, context: &mut Context<'_>) {
        // A client that does not read leaves its results in the engine: they count as operations in progress,
        // which are limited, instead of bytes in memory.
        while self.outgoing.len() < OUTGOING {
            let Poll::Ready((number, ended)) = self.operations.poll_ended(context) else { return };
            match ended {
                Ok(Ok(result)) => put_result(&mut self.outgoing, number, &result),
                Ok(Err(error)) => self.refuse(number, ErrorCode::from(&error), None, &error.to_string()),
                Err(code) => {
                    Response::Error { operation: number, code, text: String::new() }
                        .write(&mut self.outgoing);
                }
            }
        }
    }

    /// Responds with an error, which is counted and logged.
    pub(super) fn refuse(&mut self, operation: u32, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        let text = detail.to_owned();
        Response::Error { operation, code, text }.write(&mut self.outgoing);
        self.note_refusal(code, key, detail);
    }

    fn note_refusal(&self, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        let refused =
            RefusedRequest { client: &self.peer.client, peer: &self.peer.address, code, key, detail };
        self.worker.shared.figures.refused(&refused);
    }

    /// Ends the [`Connection`] after [`MOST_FAULTS`] requests that do not belong to TLS.
    fn note_fault(&mut self, code: ErrorCode, key: Option<KeyId>, detail: &str) {
        if !is_fault(code, key, detail) {
            return;
        }
        self.faults += 1;
        if self.faults >= MOST_FAULTS {
            self.end("too many refused requests");
        }
    }

    /// Ends the [`Connection`] of a [`Client`] that has lost its permission.
    pub(super) fn end_unauthorized(&mut self, reason: &str) {
        if !self.ending {
            self.ending = true;
            self.refuse(0, ErrorCode::UnknownClient, None, reason);
        }
    }

    /// Ends the [`Connection`] with a protocol error.
    pub(super) fn end(&mut self, reason: &str) {
        if !self.ending {
            self.ending = true;
            self.refuse(0, ErrorCode::Protocol, None, reason);
        }
    }
}

/// An operation in progress, and its deadline.
type Begun = (PendingOperation, Instant);

/// Error code and explanation of a refused operation.
type Refusal = (ErrorCode, &'static str);

const TAKEN: &str = "the operation number is 0 or in use";

/// Deadline of an operation whose client waits for `remaining`.
fn deadline(remaining: Duration) -> Result<Instant, Refusal> {
    if remaining.is_zero() {
        return Err((ErrorCode::DeadlinePassed, "the deadline has passed"));
    }
    // A duration and not a time, since the clocks of two machines may differ.
    Ok(Instant::now() + remaining.min(LONGEST_WAIT))
}

/// Explanation of a decryption refused by the policy.
const fn undecrypted(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::OperationNotAllowed => "the client may not request decryption",
        ErrorCode::Scheme => "only RSA keys decrypt",
        _ => "the client exceeds its rate",
    }
}

/// Returns whether no honest gateway sends such a request. Excluded are refusals that clients of a gateway can cause:
/// they choose which key it requests, and their random may make the signed message valid ASN.1.
fn is_fault(code: ErrorCode, key: Option<KeyId>, detail: &str) -> bool {
    match code {
        ErrorCode::Shape => detail != ASN1,
        ErrorCode::Scheme => true,
        ErrorCode::UnknownKey => key.is_none(),
        _ => false,
    }
}

const ASN1: &str = "the message of TLS 1.2 is also valid ASN.1";

/// Explanation of a signature refused by the policy.
fn explained(code: ErrorCode, message: &[u8]) -> &'static str {
    match code {
        ErrorCode::Shape if is_asn1(message) => ASN1,
        ErrorCode::Shape => "the message is not content that TLS signs",
        ErrorCode::OperationNotAllowed => "the client may not request this kind of signature",
        ErrorCode::Scheme => "the key or this version of TLS does not support the scheme",
        ErrorCode::Rate => "the client exceeds its rate",
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
