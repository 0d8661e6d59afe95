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
    mechanism::Way,
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
    ways: Vec<(SignatureScheme, Way)>,
    decrypts: bool,
    place: Mutex<Place>,
    faults: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Unknown,
    /// A handle, valid in the sessions of one connection (epoch).
    At(ObjectHandle, u64),
    Missing(Instant),
}

/// Reasons for which an operation has no result.
#[derive(Debug)]
pub(crate) enum Trouble {
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
        ways: Vec<(SignatureScheme, Way)>,
        decrypts: bool,
        (handle, epoch): (ObjectHandle, u64),
    ) -> Self {
        let place = Mutex::new(Place::At(handle, epoch));
        Self { id, uri, public, ways, decrypts, place, faults: AtomicU64::new(0) }
    }

    /// Checks whether the key supports the operation, before it is queued.
    pub(crate) fn check(&self, kind: &OperationKind) -> Result<(), KeyError> {
        let algorithm = self.public.algorithm();
        match kind {
            OperationKind::Sign { scheme, .. } if self.way(*scheme).is_none() => {
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

    fn way(&self, scheme: SignatureScheme) -> Option<Way> {
        self.ways.iter().find(|(own, _)| *own == scheme).map(|(_, way)| *way)
    }

    /// Performs an operation in a session of connection `epoch`.
    pub(crate) fn perform(
        &self,
        session: &Session,
        epoch: u64,
        kind: &OperationKind,
    ) -> Result<Zeroizing<Vec<u8>>, Trouble> {
        self.check(kind).map_err(Trouble::Operation)?;
        let handle = self.handle(session, epoch)?;
        match self.perform_with(session, handle, kind) {
            // The object may have been replaced by another with the same name.
            Err(Trouble::KeyGone) => {
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
    ) -> Result<Zeroizing<Vec<u8>>, Trouble> {
        match kind {
            OperationKind::Sign { scheme, message } => {
                let way = self.way(*scheme).ok_or(Trouble::Operation(KeyError::Failed("no such scheme")))?;
                let signature = sign(session, handle, way, message)?;
                if !signature
                    .as_ref()
                    .is_some_and(|signature| self.public.verifies(*scheme, message, signature))
                {
                    self.faults.fetch_add(1, Ordering::Relaxed);
                    let fault = KeyError::Failed("the token's signature is not one of the certificate's key");
                    return Err(Trouble::Operation(fault));
                }
                Ok(signature.unwrap_or_default().into())
            }
            OperationKind::Decrypt { ciphertext } => {
                let padded = session.decrypt(&Mechanism::RsaX509, handle, ciphertext);
                let padded = Zeroizing::new(padded.map_err(|error| trouble_of_decryption(&error))?);
                widened(padded, ciphertext.len())
            }
            _ => Err(Trouble::Operation(KeyError::Failed("tokens know no such operation"))),
        }
    }

    /// Returns whether the token has the key. Searches it unless its handle in this connection is known.
    pub(crate) fn is_there(&self, session: &Session, epoch: u64) -> Result<bool, Trouble> {
        match self.handle(session, epoch) {
            Ok(_) => Ok(true),
            Err(Trouble::KeyGone) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Searches the key even if its handle is known, and returns whether the token has it.
    pub(crate) fn is_shown(&self, session: &Session, epoch: u64) -> Result<bool, Trouble> {
        self.forget();
        self.is_there(session, epoch)
    }

    /// Forgets the handle, so that the next operation searches the key.
    pub(crate) fn forget(&self) {
        *self.place() = Place::Unknown;
    }

    fn handle(&self, session: &Session, epoch: u64) -> Result<ObjectHandle, Trouble> {
        let known = *self.place();
        match known {
            Place::At(handle, known) if known == epoch => return Ok(handle),
            Place::Missing(since) if since.elapsed() < MISSING => return Err(Trouble::KeyGone),
            _ => {}
        }
        let found = select::keys(session, &self.uri).map_err(|error| trouble_of_signing(&error))?;
        let found = if let [handle] = found[..] { Some(handle) } else { None };
        *self.place() =
            found.map_or_else(|| Place::Missing(Instant::now()), |handle| Place::At(handle, epoch));
        found.ok_or(Trouble::KeyGone)
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a signature in the encoding of TLS; `None` if the token's result has another form.
pub(crate) fn sign(
    session: &Session,
    handle: ObjectHandle,
    way: Way,
    message: &[u8],
) -> Result<Option<Vec<u8>>, Trouble> {
    let raw = session.sign(&way.mechanism(), handle, &way.input(message));
    let raw = raw.map_err(|error| trouble_of_signing(&error))?;
    Ok(if way.is_ecdsa() { ecdsa_der(&raw) } else { Some(raw) })
}

/// Pads the result to the length of the modulus. Some modules omit leading zeros.
fn widened(padded: Zeroizing<Vec<u8>>, size: usize) -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let Some(missing) = size.checked_sub(padded.len()) else {
        return Err(Trouble::Operation(KeyError::Failed("the token's result is longer than the modulus")));
    };
    if missing == 0 {
        return Ok(padded);
    }
    let mut widened = Zeroizing::new(Vec::with_capacity(size));
    widened.resize(missing, 0);
    widened.extend_from_slice(&padded);
    Ok(widened)
}

/// Classifies an error of a signature. The input was created here and is always valid, so an error without a reason
/// indicates a problem of the token.
pub(crate) fn trouble_of_signing(error: &Error) -> Trouble {
    let Error::Pkcs11(code, _) = error else { return unexpected(error) };
    match code {
        RvError::FunctionFailed | RvError::DeviceMemory | RvError::HostMemory => {
            Trouble::Unclear(call(error))
        }
        RvError::GeneralError
        | RvError::DeviceError
        | RvError::OperationActive
        | RvError::VendorDefined(_) => Trouble::Token(call(error)),
        _ => trouble_of_decryption(error),
    }
}

/// Classifies an error of a decryption. The input comes from a client, which must not be able to force a reconnection
/// of all sessions.
fn trouble_of_decryption(error: &Error) -> Trouble {
    let Error::Pkcs11(code, _) = error else { return unexpected(error) };
    match code {
        RvError::ObjectHandleInvalid | RvError::KeyHandleInvalid => Trouble::KeyGone,
        RvError::CryptokiNotInitialized
        | RvError::SessionHandleInvalid
        | RvError::SessionClosed
        | RvError::DeviceRemoved
        | RvError::TokenNotPresent
        | RvError::TokenNotRecognized
        | RvError::SlotIdInvalid
        | RvError::UserNotLoggedIn => Trouble::Token(call(error)),
        _ => unexpected(error),
    }
}

fn unexpected(error: &Error) -> Trouble {
    tracing::debug!(error = call(error), "a token did not perform an operation");
    Trouble::Operation(KeyError::Failed("the token did not perform it"))
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
        assert!(matches!(trouble_of_signing(&error(RvError::GeneralError)), Trouble::Token(_)));
        assert!(matches!(trouble_of_signing(&error(RvError::FunctionFailed)), Trouble::Unclear(_)));
        assert!(matches!(trouble_of_decryption(&error(RvError::GeneralError)), Trouble::Operation(_)));
        for removed in [RvError::DeviceRemoved, RvError::SessionHandleInvalid, RvError::UserNotLoggedIn] {
            assert!(matches!(trouble_of_signing(&error(removed)), Trouble::Token(_)));
            assert!(matches!(trouble_of_decryption(&error(removed)), Trouble::Token(_)));
        }
        assert!(matches!(trouble_of_signing(&error(RvError::MechanismInvalid)), Trouble::Operation(_)));
        assert!(matches!(trouble_of_signing(&error(RvError::KeyHandleInvalid)), Trouble::KeyGone));
    }

    #[test]
    fn a_result_is_as_long_as_the_modulus() {
        assert_eq!(*widened(vec![1, 2].into(), 4).unwrap(), [0, 0, 1, 2]);
        assert_eq!(*widened(vec![1, 2].into(), 2).unwrap(), [1, 2]);
        assert!(widened(vec![1, 2, 3].into(), 2).is_err());
    }
}
