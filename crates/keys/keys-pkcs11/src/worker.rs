//! Threads of a token: operations, reconnection, and deadlines.

use std::{io, sync::Arc, thread};

use brisk_keys::{Completion, KeyError, KeyResult, OperationKind};

use zeroize::Zeroizing;

use crate::{
    PERFORMER,
    connection::{Connection, OpenSession},
    engine::Shared,
    error::TokenError,
    key::{OperationFailure, TokenKey},
    module::Entered,
    task::{ConnectionChange, Job, WorkerTask},
};

const NOT_PERFORMED: KeyError = KeyError::Failed("the token does not perform it");

/// Starts one thread per session and a clock thread. They end when the dispatcher is stopped.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    for number in 0..shared.sessions {
        let of_thread = Arc::clone(shared);
        let run = move || {
            work(&of_thread, number);
            of_thread.dispatcher.ended();
        };
        // Counted before the thread exists, since its `ended` could otherwise be the first of both calls.
        shared.dispatcher.started();
        let started = thread::Builder::new().name(format!("token-{number}")).spawn(run);
        started.inspect_err(|_| shared.dispatcher.ended())?;
    }
    let shared = Arc::clone(shared);
    let watch = move || {
        shared.dispatcher.keep_time(|| {
            tracing::warn!(
                token = shared.label(),
                module = %shared.module.path().display(),
                "the PKCS #11 module did not answer in time; the handshake failed"
            );
        });
    };
    thread::Builder::new().name("token-clock".to_owned()).spawn(watch)?;
    Ok(())
}

fn work(shared: &Shared, number: usize) {
    loop {
        match shared.dispatcher.next() {
            WorkerTask::Perform(job, session) => perform(shared, number, job, session),
            WorkerTask::Ask(query, session, facts) => {
                query.ask(&session, &facts);
                give_back(shared, session);
            }
            WorkerTask::Connect { epoch, stale } => {
                close(shared, stale);
                connect(shared, epoch);
            }
            WorkerTask::Stop(sessions) => return close(shared, sessions),
        }
    }
}

fn close(shared: &Shared, sessions: Vec<OpenSession>) {
    for session in sessions {
        session.close(&shared.module);
    }
}

fn give_back(shared: &Shared, session: OpenSession) {
    if let Some(session) = shared.dispatcher.give_back(session) {
        session.close(&shared.module);
    }
}

fn perform(shared: &Shared, number: usize, job: Job, session: OpenSession) {
    let Job { key, kind, completion, deadline, again } = job;
    let Some(completion) = completion.begin() else { return give_back(shared, session) };
    shared.dispatcher.begin(number, session.epoch, deadline, completion);
    // The deadline is watched while the result depends on a call of the module.
    match outcome(shared, &session, &key, &kind) {
        Ok(result) => {
            shared.performed();
            answer(shared.dispatcher.end(number), Ok(result));
            give_back(shared, session);
        }
        Err(OperationFailure::Unclear(cause)) => {
            let epoch = session.epoch;
            let renewed = if shared.is_hopeless() {
                session.close(&shared.module);
                None
            } else {
                renewed_with(shared, session, &key)
            };
            // After the renewal, which calls the module too: until here, the clock thread watches the
            // deadline.
            let completion = shared.dispatcher.end(number);
            if let Some(session) = renewed {
                answer(completion, Err(NOT_PERFORMED));
                return give_back(shared, session);
            }
            let unfinished = completion.map(|completion| Job { key, kind, completion, deadline, again });
            lose(shared, epoch, &cause, unfinished);
        }
        Err(OperationFailure::Token(cause)) => {
            let epoch = session.epoch;
            session.close(&shared.module);
            let completion = shared.dispatcher.end(number);
            let unfinished = completion.map(|completion| Job { key, kind, completion, deadline, again });
            lose(shared, epoch, &cause, unfinished);
        }
        Err(failure) => {
            let error = match failure {
                OperationFailure::Operation(error) => error,
                _ => KeyError::Failed("the token does not have the key any more"),
            };
            // Before the renewal, for which the client need not wait.
            answer(shared.dispatcher.end(number), Err(error));
            renew(shared, session);
        }
    }
}

/// Reports an unusable connection. An unfinished operation is repeated once.
fn lose(shared: &Shared, epoch: u64, cause: &str, unfinished: Option<Job>) {
    tracing::debug!(token = shared.label(), cause, "a session with the token became unusable");
    match unfinished {
        Some(job) if job.again => {
            job.completion.complete(Err(NOT_PERFORMED), PERFORMER);
            shared.dispatcher.lose(epoch, None);
        }
        unfinished => {
            let unfinished = unfinished.map(|job| Job { again: true, ..job });
            shared.dispatcher.lose(epoch, unfinished);
        }
    }
}

/// Replaces the [`OpenSession`] if the token still has the key: then one failed operation does not require a
/// reconnection of all sessions.
fn renewed_with(shared: &Shared, session: OpenSession, key: &TokenKey) -> Option<OpenSession> {
    let entered = shared.module.enter().ok()?;
    let renewed = session.renewed(&entered).ok()?;
    let is_there = key.is_shown(renewed.within(&entered)?, renewed.epoch).unwrap_or(false);
    if !is_there {
        renewed.close_within(&entered);
        return None;
    }
    Some(renewed)
}

/// Completes an operation. `None` if it has already failed at its deadline.
fn answer(completion: Option<Completion>, result: KeyResult) {
    if let Some(completion) = completion {
        completion.complete(result, PERFORMER);
    }
}

/// Performs an operation in `session`.
fn outcome(
    shared: &Shared,
    session: &OpenSession,
    key: &TokenKey,
    kind: &OperationKind,
) -> Result<Zeroizing<Vec<u8>>, OperationFailure> {
    let entered = shared.module.enter().map_err(|error| OperationFailure::Token(error.to_string()))?;
    let Some(open) = session.within(&entered) else {
        return Err(OperationFailure::Token("the module was reinitialized".into()));
    };
    let outcome = key.perform(open, session.epoch, kind);
    if !matches!(outcome, Err(OperationFailure::KeyGone)) {
        return outcome;
    }
    // Either this key was removed, or the token with all keys, which some modules report in no other way.
    let others = shared.keys();
    let mut others = others.iter().filter(|other| other.id != key.id);
    if others.any(|other| other.is_shown(open, session.epoch).unwrap_or(false)) {
        return outcome;
    }
    Err(OperationFailure::Token("the token shows none of its keys".into()))
}

/// Replaces the [`OpenSession`] after a failed operation, which may still be active in it.
fn renew(shared: &Shared, session: OpenSession) {
    let epoch = session.epoch;
    let renewed = shared.module.enter().and_then(|entered| session.renewed(&entered));
    match renewed {
        Ok(session) => give_back(shared, session),
        Err(_) => shared.dispatcher.lose(epoch, None),
    }
}

/// Connects, and logs changes.
fn connect(shared: &Shared, epoch: u64) {
    match reach(shared, epoch) {
        Ok(connection) => {
            let sessions = connection.sessions.len();
            let change = shared.dispatcher.connected(connection);
            let token = shared.label();
            if let ConnectionChange::Back(after) = change {
                tracing::info!(token, sessions, "the token is back after {:.1} s", after.as_secs_f64());
            } else {
                tracing::debug!(token, sessions, "the token has been reached");
            }
        }
        Err(error) => {
            let (token, cause) = (shared.label(), error.to_string());
            if shared.dispatcher.not_connected(error) == ConnectionChange::Lost {
                tracing::warn!(
                    token,
                    "the token cannot be reached: handshakes with its keys fail until it is back: {cause}"
                );
            } else {
                tracing::debug!(token, cause, "the token cannot be reached");
            }
        }
    }
}

/// Opens sessions. If that fails, reinitializes the module and tries again.
fn reach(shared: &Shared, epoch: u64) -> Result<Connection, TokenError> {
    let (error, generation) = {
        let entered = shared.module.enter()?;
        match look(shared, &entered, epoch) {
            Ok(connection) => return Ok(connection),
            Err(error) => (error, entered.generation()),
        }
    };
    // A new session does not make a PIN valid, and a module in use by other tokens must not be reinitialized.
    let hopeless = matches!(
        error,
        TokenError::PinRefused { .. }
            | TokenError::PinMissing { .. }
            | TokenError::PinFile { .. }
            | TokenError::PinForm { .. }
    );
    if hopeless || shared.dispatcher.connections() == 0 || shared.module.is_used_beside(shared) {
        return Err(error);
    }
    shared.module.restart(generation)?;
    look(shared, &shared.module.enter()?, epoch)
}

/// Opens sessions and checks that the token has at least one of its known keys.
fn look(shared: &Shared, entered: &Entered<'_>, epoch: u64) -> Result<Connection, TokenError> {
    let connection = shared.access.connect(entered, shared.sessions, epoch)?;
    let keys = shared.keys();
    for key in &keys {
        // A key that was missing a moment ago would otherwise not be searched for a second
        // (`HandleState::Missing`).
        key.forget();
    }
    let first = connection.sessions.first().and_then(|session| session.within(entered));
    let there = |session| keys.iter().any(|key| key.is_there(session, epoch).unwrap_or(false));
    if keys.is_empty() || first.is_some_and(there) {
        return Ok(connection);
    }
    let Connection { facts, sessions } = connection;
    for session in sessions {
        session.close_within(entered);
    }
    Err(TokenError::NoKey {
        token: facts.label,
        uri: shared.access.uri.clone(),
        found: "it shows none of the keys that it had".into(),
    })
}
