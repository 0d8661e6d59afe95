//! A key in a token: its handle, and operations with it.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use brisk_keys::{KeyError, KeyId, OperationKind};
use brisk_wire::registry::SignatureScheme;
use cryptoki::{
    error::{Error, RvError},
    mechanism::Mechanism,
    object::ObjectHandle,
    session::Session,
};
use zeroize::Zeroizing;

use crate::{
    error::call,
    mechanism::SigningMethod,
    select,
    signature::{PublicKey, ecdsa_der},
    uri::KeyUri,
};

/// Time for which a missing key is not searched again.
const MISSING: Duration = Duration::from_secs(1);

/// A key that was found and belongs to a certificate.
#[derive(Debug)]
pub(crate) struct TokenKey {
    pub(crate) id: KeyId,
    pub(crate) uri: KeyUri,
    public: PublicKey,
    methods: Vec<(SignatureScheme, SigningMethod)>,
    decrypts: bool,
    handle_state: Mutex<HandleState>,
    faults: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum HandleState {
    Unknown,
    /// An `ObjectHandle`, valid in the sessions of one connection (epoch).
    At(ObjectHandle, u64),
    Missing(Instant),
}

/// Reasons for which an operation has no result.
#[derive(Debug)]
pub(crate) enum OperationFailure {
    /// The operation or the key is invalid; the token works.
    Operation(KeyError),
    /// The token no longer has the key.
    KeyGone,
    /// The operation failed without a reason that shows whether the token works.
    Unclear(String),
    /// The session is unusable, and so are the other sessions of the connection.
    Token(String),
}

impl TokenKey {
    /// A key whose object has `handle` in the sessions of connection `epoch`.
    pub(crate) fn new(
        id: KeyId,
        uri: KeyUri,
        public: PublicKey,
        methods: Vec<(SignatureScheme, SigningMethod)>,
        decrypts: bool,
        (handle, epoch): (ObjectHandle, u64),
    ) -> Self {
        let handle_state = Mutex::new(HandleState::At(handle, epoch));
        Self { id, uri, public, methods, decrypts, handle_state, faults: AtomicU64::new(0) }
    }

    /// Checks whether the key supports the operation, before it is queued.
    pub(crate) fn check(&self, kind: &OperationKind) -> Result<(), KeyError> {
        let algorithm = self.public.algorithm();
        match kind {
            OperationKind::Sign { scheme, .. } if self.method(*scheme).is_none() => {
                Err(KeyError::UnsupportedScheme { scheme: *scheme, algorithm })
            }
            OperationKind::Sign { .. } => Ok(()),
            OperationKind::Decrypt { ciphertext } => match self.public.modulus() {
                // Equal lengths, so the order of big-endian bytes is the order of the numbers.
                Some(modulus) if ciphertext.len() == modulus.len() && ciphertext[..] < *modulus => {
                    if self.decrypts {
                        Ok(())
                    } else {
                        Err(KeyError::Failed("the token does not let this key decrypt"))
                    }
                }
                Some(_) => Err(KeyError::OutOfRange),
                None => Err(KeyError::CannotDecrypt(algorithm)),
            },
            _ => Err(KeyError::Failed("tokens know no such operation")),
        }
    }

    /// Number of wrong signatures; none was returned.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    fn method(&self, scheme: SignatureScheme) -> Option<SigningMethod> {
        self.methods.iter().find(|(own, _)| *own == scheme).map(|(_, method)| *method)
    }

    /// Performs an operation in a session of connection `epoch`.
    pub(crate) fn perform(
        &self,
        session: &Session,
        epoch: u64,
        kind: &OperationKind,
    ) -> Result<Zeroizing<Vec<u8>>, OperationFailure> {
        self.check(kind).map_err(OperationFailure::Operation)?;
        let handle = self.handle(session, epoch)?;
        match self.perform_with(session, handle, kind) {
            // The object may have been replaced by another with the same name.
            Err(OperationFailure::KeyGone) => {
                self.forget();
                let handle = self.handle(session, epoch)?;
                self.perform_with(session, handle, kind)
            }
            outcome => outcome,
        }
    }

    fn perform_with(
        &self,
        session: &Session,
        handle: ObjectHandle,
        kind: &OperationKind,
    ) -> Result<Zeroizing<Vec<u8>>, OperationFailure> {
        match kind {
            OperationKind::Sign { scheme, message } => {
                let method = self
                    .method(*scheme)
                    .ok_or(OperationFailure::Operation(KeyError::Failed("no such scheme")))?;
                let signature = sign(session, handle, method, message)?;
                // A wrong signature would fail the handshake, and one with a fault in a CRT computation would reveal
                // the RSA key.
                if !signature
                    .as_ref()
                    .is_some_and(|signature| self.public.verifies(*scheme, message, signature))
                {
                    self.faults.fetch_add(1, Ordering::Relaxed);
                    let fault = KeyError::Failed("the token's signature is not one of the certificate's key");
                    return Err(OperationFailure::Operation(fault));
                }
                Ok(signature.unwrap_or_default().into())
            }
            OperationKind::Decrypt { ciphertext } => {
                let padded = session.decrypt(&Mechanism::RsaX509, handle, ciphertext);
                let padded = Zeroizing::new(padded.map_err(|error| decryption_failure(&error))?);
                padded_to_modulus(padded, ciphertext.len())
            }
            _ => Err(OperationFailure::Operation(KeyError::Failed("tokens know no such operation"))),
        }
    }

    /// Returns whether the token has the key. Searches it unless its handle in this connection is known.
    pub(crate) fn is_there(&self, session: &Session, epoch: u64) -> Result<bool, OperationFailure> {
        match self.handle(session, epoch) {
            Ok(_) => Ok(true),
            Err(OperationFailure::KeyGone) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Searches the key even if its handle is known, and returns whether the token has it.
    pub(crate) fn is_shown(&self, session: &Session, epoch: u64) -> Result<bool, OperationFailure> {
        self.forget();
        self.is_there(session, epoch)
    }

    /// Forgets the [`ObjectHandle`], so that the next operation searches the key.
    pub(crate) fn forget(&self) {
        *self.handle_state() = HandleState::Unknown;
    }

    fn handle(&self, session: &Session, epoch: u64) -> Result<ObjectHandle, OperationFailure> {
        let known = *self.handle_state();
        match known {
            HandleState::At(handle, known) if known == epoch => return Ok(handle),
            HandleState::Missing(since) if since.elapsed() < MISSING => {
                return Err(OperationFailure::KeyGone);
            }
            _ => {}
        }
        let found = select::keys(session, &self.uri).map_err(|error| signing_failure(&error))?;
        // Of several matches none is used, since the first may be the key of another certificate.
        let found = if let [handle] = found[..] { Some(handle) } else { None };
        *self.handle_state() = found
            .map_or_else(|| HandleState::Missing(Instant::now()), |handle| HandleState::At(handle, epoch));
        found.ok_or(OperationFailure::KeyGone)
    }

    fn handle_state(&self) -> std::sync::MutexGuard<'_, HandleState> {
        self.handle_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a signature in the encoding of TLS; `None` if the token's result has another form.
pub(crate) fn sign(
    session: &Session,
    handle: ObjectHandle,
    method: SigningMethod,
    message: &[u8],
) -> Result<Option<Vec<u8>>, OperationFailure> {
    let raw = session.sign(&method.mechanism(), handle, &method.input(message));
    let raw = raw.map_err(|error| signing_failure(&error))?;
    Ok(if method.is_ecdsa() { ecdsa_der(&raw) } else { Some(raw) })
}

/// Pads the result to the length of the modulus. Some modules omit leading zeros.
fn padded_to_modulus(
    padded: Zeroizing<Vec<u8>>,
    size: usize,
) -> Result<Zeroizing<Vec<u8>>, OperationFailure> {
    let Some(missing) = size.checked_sub(padded.len()) else {
        return Err(OperationFailure::Operation(KeyError::Failed(
            "the token's result is longer than the modulus",
        )));
    };
    if missing == 0 {
        return Ok(padded);
    }
    let mut result = Zeroizing::new(Vec::with_capacity(size));
    result.resize(missing, 0);
    result.extend_from_slice(&padded);
    Ok(result)
}

/// Classifies an error of a signature. The input was created here and is always valid, so an error without a reason
/// indicates a problem of the token.
pub(crate) fn signing_failure(error: &Error) -> OperationFailure {
    let Error::Pkcs11(code, _) = error else { return unexpected(error) };
    match code {
        RvError::FunctionFailed | RvError::DeviceMemory | RvError::HostMemory => {
            OperationFailure::Unclear(call(error))
        }
        RvError::GeneralError
        | RvError::DeviceError
        | RvError::OperationActive
        | RvError::VendorDefined(_) => OperationFailure::Token(call(error)),
        _ => decryption_failure(error),
    }
}

/// Classifies an error of a decryption. The input comes from a client, which must not be able to force a reconnection
/// of all sessions.
fn decryption_failure(error: &Error) -> OperationFailure {
    let Error::Pkcs11(code, _) = error else { return unexpected(error) };
    match code {
        RvError::ObjectHandleInvalid | RvError::KeyHandleInvalid => OperationFailure::KeyGone,
        RvError::CryptokiNotInitialized
        | RvError::SessionHandleInvalid
        | RvError::SessionClosed
        | RvError::DeviceRemoved
        | RvError::TokenNotPresent
        | RvError::TokenNotRecognized
        | RvError::SlotIdInvalid
        | RvError::UserNotLoggedIn => OperationFailure::Token(call(error)),
        _ => unexpected(error),
    }
}

fn unexpected(error: &Error) -> OperationFailure {
    tracing::debug!(error = call(error), "a token did not perform an operation");
    OperationFailure::Operation(KeyError::Failed("the token did not perform it"))
}

#[cfg(test)]
mod tests {
    use cryptoki::context::Function;

    use super::*;

    fn error(code: RvError) -> Error {
        Error::Pkcs11(code, Function::Sign)
    }

    #[test]
    fn a_ciphertext_does_not_bring_the_token_into_discredit() {
        assert!(matches!(signing_failure(&error(RvError::GeneralError)), OperationFailure::Token(_)));
        assert!(matches!(signing_failure(&error(RvError::FunctionFailed)), OperationFailure::Unclear(_)));
        assert!(matches!(decryption_failure(&error(RvError::GeneralError)), OperationFailure::Operation(_)));
        for removed in [RvError::DeviceRemoved, RvError::SessionHandleInvalid, RvError::UserNotLoggedIn] {
            assert!(matches!(signing_failure(&error(removed)), OperationFailure::Token(_)));
            assert!(matches!(decryption_failure(&error(removed)), OperationFailure::Token(_)));
        }
        assert!(matches!(signing_failure(&error(RvError::MechanismInvalid)), OperationFailure::Operation(_)));
        assert!(matches!(signing_failure(&error(RvError::KeyHandleInvalid)), OperationFailure::KeyGone));
    }

    #[test]
    fn a_result_is_as_long_as_the_modulus() {
        assert_eq!(*padded_to_modulus(vec![1, 2].into(), 4).unwrap(), [0, 0, 1, 2]);
        assert_eq!(*padded_to_modulus(vec![1, 2].into(), 2).unwrap(), [1, 2]);
        assert!(padded_to_modulus(vec![1, 2, 3].into(), 2).is_err());
    }
}
