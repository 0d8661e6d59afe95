//! Connection to a token: its sessions and properties.

use cryptoki::{
    error::{Error, RvError},
    mechanism::MechanismType,
    session::{Session, UserType},
    slot::{Slot, TokenInfo},
};

use crate::{
    error::{TokenError, call},
    module::{Entered, Module},
    pin::Pin,
    select,
    uri::{PinSource, TokenName},
};

/// A session that is logged in.
#[derive(Debug)]
pub(crate) struct OpenSession {
    session: Session,
    slot: Slot,
    /// Number of the [`Connection`] that it belongs to.
    pub(crate) epoch: u64,
    /// Initialization of the [`Module`] that the handle belongs to.
    generation: u64,
}

impl OpenSession {
    /// The [`OpenSession`], if its handle is still valid.
    pub(crate) fn within(&self, entered: &Entered<'_>) -> Option<&Session> {
        (self.generation == entered.generation()).then_some(&self.session)
    }

    /// Replaces the [`OpenSession`] by a new one of the same token, because a failed operation may still be active in
    /// it.
    pub(crate) fn renewed(self, entered: &Entered<'_>) -> Result<Self, TokenError> {
        let (slot, epoch, generation) = (self.slot, self.epoch, self.generation);
        if generation != entered.generation() {
            return Err(TokenError::Call("the module was reinitialized".to_owned()));
        }
        // Opened first: closing the only session would log out.
        let opened = entered.context().open_ro_session_no_drop(slot);
        self.close_within(entered);
        // A token may support only one session; then the old one must be closed first.
        let session = opened.or_else(|_| entered.context().open_ro_session_no_drop(slot))?;
        Ok(Self { session, slot, epoch, generation })
    }

    /// Closes the [`OpenSession`], if its handle is still valid.
    pub(crate) fn close(self, module: &Module) {
        if let Ok(entered) = module.enter() {
            self.close_within(&entered);
        }
    }

    pub(crate) fn close_within(self, entered: &Entered<'_>) {
        if self.generation == entered.generation() {
            // An error means that the session is closed already.
            drop(self.session.close());
        }
    }
}

/// Properties of a token.
#[derive(Clone, Debug)]
pub(crate) struct TokenProperties {
    pub(crate) label: String,
    pub(crate) mechanisms: Vec<MechanismType>,
}

/// A token with its sessions.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) facts: TokenProperties,
    pub(crate) sessions: Vec<OpenSession>,
}

/// Identification of a token, with the source of its PIN.
#[derive(Debug)]
pub(crate) struct TokenAccess {
    pub(crate) name: TokenName,
    pub(crate) pin: Option<PinSource>,
    /// URI of the first key, for messages.
    pub(crate) uri: String,
}

impl TokenAccess {
    /// Opens up to `wanted` sessions and logs in. PKCS #11 logs in all sessions of a token together.
    ///
    /// # Errors
    ///
    /// [`TokenError`] if the token is not found, or refuses the [`Pin`] or the first session.
    pub(crate) fn connect(
        &self,
        entered: &Entered<'_>,
        wanted: usize,
        epoch: u64,
    ) -> Result<Connection, TokenError> {
        let (context, generation) = (entered.context(), entered.generation());
        // Searched at each connection, since a token may return in another slot.
        let (slot, info) = select::token(context, &self.name, &self.uri)?;
        let mechanisms = context.get_mechanism_list(slot)?;
        let facts = TokenProperties { label: info.label().to_owned(), mechanisms };
        let opened = |session| OpenSession { session, slot, epoch, generation };
        // Sessions are closed explicitly: after a reinitialization of the module, the number of a handle
        // may belong to another session, which a drop would close.
        let first = context.open_ro_session_no_drop(slot)?;
        if let Err(error) = self.log_in(&first, &info) {
            drop(first.close());
            return Err(error);
        }
        let mut sessions = vec![opened(first)];
        while sessions.len() < wanted {
            match context.open_ro_session_no_drop(slot) {
                Ok(session) => sessions.push(opened(session)),
                // Some tokens support only a few sessions; one is enough.
                Err(error) => {
                    tracing::debug!(
                        token = facts.label,
                        error = call(&error),
                        "the token opens no more sessions"
                    );
                    break;
                }
            }
        }
        Ok(Connection { facts, sessions })
    }

    fn log_in(&self, session: &Session, info: &TokenInfo) -> Result<(), TokenError> {
        if !info.login_required() {
            return Ok(());
        }
        let Some(source) = &self.pin else {
            return Err(TokenError::PinMissing { token: info.label().to_owned() });
        };
        let pin = Pin::read(source, info.serial_number())?;
        let refused = |reason: &str| TokenError::PinRefused {
            token: info.label().to_owned(),
            path: source.path().clone(),
            reason: reason.to_owned(),
        };
        if pin.was_refused() {
            return Err(refused("it was wrong before"));
        }
        match session.login(UserType::User, Some(&pin.as_auth())) {
            // Login is state of the process: another engine may have logged in to the same token.
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(error @ Error::Pkcs11(code, _)) => Err(match code {
                RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange => {
                    pin.refuse();
                    refused(&call(&error))
                }
                // Not recorded as a wrong PIN: the same PIN is right once the operator has unlocked the
                // token.
                RvError::PinLocked | RvError::PinExpired | RvError::UserPinNotInitialized => {
                    refused(&format!("{}, which the token's own tools can change", call(&error)))
                }
                _ => error.into(),
            }),
            Err(error) => Err(error.into()),
        }
    }
}
