//! First contact before a run: tests whether the target is reachable, and whether it resumes a session repeatedly.

use std::cell::Cell;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use brisk_http_client::http3::Http3Client;
use brisk_telemetry::Resumption;
use brisk_tls_client::{Client, ClientFacts, SavedSession, SessionUse};
use brisk_wire::registry::ProtocolVersion;
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::choice::{Axis, Weighted};
use crate::connection::{HandshakeKind, Kind, Opener, Protocol};
use crate::dial::Dialer;
use crate::error::{BenchError, Failure};
use crate::http1::Http1;
use crate::http2::Http2;
use crate::http3::Http3;
use crate::measure::Recorder;
use crate::result::Cause;
use crate::sessions::Sessions;
use crate::settings::{Settings, is_as_requested};
use crate::shared::Multiplexed;
use crate::workload::{HttpVersion, PerConnection, Request, Workload};

/// Number of sessions kept during this test.
const SESSIONS: usize = 4;

/// A reachable target.
#[derive(Clone, Debug)]
pub(crate) struct ReachedTarget {
    pub(crate) address: SocketAddr,
    /// Kinds of handshake, with clients that use sessions as the target permits; `None` without TLS.
    pub(crate) kinds: Option<Weighted<(Resumption, Client)>>,
}

impl ReachedTarget {
    /// An [`Opener`] for one thread.
    pub(crate) fn opener(
        &self,
        settings: &Settings,
        recorder: Rc<Recorder>,
        thread: usize,
        sessions: impl Fn(&Client) -> usize,
    ) -> Opener {
        let kind = |(kind, client): &(Resumption, Client)| {
            Kind::Tls(HandshakeKind {
                asked: *kind,
                client: client.clone(),
                sessions: (*kind != Resumption::Full).then(|| Rc::new(Sessions::new(sessions(client)))),
            })
        };
        let protocol = match (settings.workload.requests, settings.workload.http) {
            (PerConnection::HandshakeOnly, _) => None,
            (_, HttpVersion::One) => Some(Protocol::Http1),
            (_, HttpVersion::Two { .. }) => Some(Protocol::Http2),
            (_, HttpVersion::Three { .. }) => Some(Protocol::Http3),
        };
        Opener {
            dialer: Dialer::new(self.address, settings.fast_open, thread),
            quic: Http3Client::default(),
            kinds: self.kinds.as_ref().map_or_else(|| Weighted::one(Kind::Plain), |kinds| kinds.map(kind)),
            protocol,
            recorder,
            next: Cell::new(thread as u64),
            stride: settings.threads as u64,
        }
    }
}

/// Connects to the first address of the target that accepts a connection. If none does, [`BenchError::Target`] has the
/// failure of the last one.
pub(crate) async fn reach(settings: &Settings) -> Result<ReachedTarget, BenchError> {
    // Reported only if there is no address; otherwise the failure of the last address is.
    let mut last = Failure::new(Cause::Resolve, format!("{} has no address", settings.target));
    for address in resolve(settings).await? {
        match greet(settings, address).await? {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    Err(BenchError::Target { target: settings.url.clone(), failure: last })
}

async fn resolve(settings: &Settings) -> Result<Vec<SocketAddr>, BenchError> {
    let target = settings.target.to_string();
    match timeout(settings.timeout, lookup_host(&target)).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => {
            let failure = Failure::new(Cause::Resolve, format!("cannot find {target}: {error}"));
            Err(BenchError::Target { target: settings.url.clone(), failure })
        }
        Err(_) => {
            let failure =
                Failure::new(Cause::Timeout, format!("no address of {target} within {:?}", settings.timeout));
            Err(BenchError::Target { target: settings.url.clone(), failure })
        }
    }
}

/// Tests one connection of the first kind; failures of other kinds are part of the run.
async fn greet(
    settings: &Settings,
    address: SocketAddr,
) -> Result<Result<ReachedTarget, Failure>, BenchError> {
    let handshakes = settings.handshakes.as_ref();
    let session_use = handshakes.and_then(|handshakes| handshakes.session_use);
    // Repeated use is permitted for the test, which determines whether the target permits it too.
    let found =
        ReachedTarget { address, kinds: clients(settings, |_| session_use.unwrap_or(SessionUse::Many))? };
    // A recorder without a begin counts nothing, and the lack of a receiver is no error.
    let recorder = Rc::new(Recorder::new(channel().0));
    let opener = found.opener(settings, recorder, 0, |_| SESSIONS);
    let mut kinds = opener.kinds.values();
    let first = kinds.next().expect("a mix has kinds");
    if let Err(failure) = attempt(settings, &opener, first, None).await {
        return Ok(Err(failure));
    }
    if session_use.is_some() {
        return Ok(Ok(found));
    }
    let mut uses = Vec::new();
    for kind in [first].into_iter().chain(kinds) {
        if let Some(handshake) = kind.handshake() {
            uses.push((handshake.asked, session_use_of(settings, &opener, kind, handshake).await));
        }
    }
    let wanted = |kind| {
        let found = uses.iter().find(|(own, _)| *own == kind);
        found.map_or(SessionUse::Many, |(_, session_use)| *session_use)
    };
    Ok(Ok(ReachedTarget { address, kinds: clients(settings, wanted)? }))
}

fn clients(
    settings: &Settings,
    session_use: impl Fn(Resumption) -> SessionUse,
) -> Result<Option<Weighted<(Resumption, Client)>>, BenchError> {
    let Some(handshakes) = &settings.handshakes else { return Ok(None) };
    let mut clients = Vec::new();
    for (weight, kind) in handshakes.mix.weights() {
        let client =
            handshakes.client(*kind, session_use(*kind)).expect("settings have only kinds that are offered");
        let client = Client::new(client).map_err(|error| BenchError::settings(error.to_string()))?;
        clients.push((weight as u32, (*kind, client)));
    }
    Ok(Some(Weighted::new(clients).expect("a mix has kinds")))
}

/// [`SessionUse::Many`] if the target resumes a TLS 1.3 session twice, or does not resume at all, which the run reports.
async fn session_use_of(
    settings: &Settings,
    opener: &Opener,
    kind: &Kind,
    handshake: &HandshakeKind,
) -> SessionUse {
    let Some(sessions) = &handshake.sessions else { return SessionUse::Many };
    if sessions.len() == 0 && attempt(settings, opener, kind, None).await.is_err() {
        return SessionUse::Many;
    }
    // TLS 1.2 has no rule against repeated use, so only sessions of TLS 1.3 are tested.
    let Some(session) = sessions.take().filter(|session| session.version() == ProtocolVersion::TLS1_3) else {
        return SessionUse::Many;
    };
    // Cloned before the first use, which consumes the session.
    let Some(again) = session.try_clone() else { return SessionUse::Once };
    let is_resumed = |facts: Result<Option<ClientFacts>, Failure>| {
        let facts = facts.ok().flatten();
        facts.is_some_and(|facts| is_as_requested(handshake.asked, facts.resumption))
    };
    if !is_resumed(attempt(settings, opener, kind, Some(session)).await) {
        return SessionUse::Many;
    }
    if is_resumed(attempt(settings, opener, kind, Some(again)).await) {
        SessionUse::Many
    } else {
        SessionUse::Once
    }
}

async fn attempt(
    settings: &Settings,
    opener: &Opener,
    kind: &Kind,
    session: Option<SavedSession>,
) -> Result<Option<ClientFacts>, Failure> {
    let once = once(opener, kind, session, &settings.workload);
    let late = |limit: Duration| {
        let text = match settings.workload.http {
            HttpVersion::Three { .. } => format!(
                "no answer over UDP within {limit:?}: the server has no HTTP/3, or UDP is blocked on the way"
            ),
            HttpVersion::One | HttpVersion::Two { .. } => format!("nothing within {limit:?}"),
        };
        Failure::new(Cause::Timeout, text)
    };
    timeout(settings.timeout, once).await.unwrap_or_else(|_| Err(late(settings.timeout)))
}

/// Makes one connection of this kind with one request, if the load has any, and closes it. Its sessions are kept.
/// Returns the result of the handshake; `None` without TLS.
pub(crate) async fn once(
    opener: &Opener,
    kind: &Kind,
    session: Option<SavedSession>,
    workload: &Workload,
) -> Result<Option<ClientFacts>, Failure> {
    if let (PerConnection::HandshakeOnly, HttpVersion::Three { .. }, Kind::Tls(kind)) =
        (workload.requests, workload.http, kind)
    {
        let (link, _) = opener.open_quic(kind, session, None).await?;
        let facts = link.facts.clone();
        link.close().await;
        return Ok(Some(facts));
    }
    if workload.requests == PerConnection::HandshakeOnly {
        let mut link = opener.open(kind, session, None).await?;
        link.fetch_session().await;
        let facts = link.facts().cloned();
        link.close().await;
        return Ok(facts);
    }
    let request = workload.choice.pick(0, Axis::Request);
    let one = PerConnection::Requests(NonZeroU32::MIN);
    match workload.http {
        HttpVersion::One => {
            let mut connection = Http1::open(opener, kind, session, one, request).await?;
            let facts = connection.facts().cloned();
            connection.exchange(request).await.map_err(Failure::from)?;
            connection.close().await;
            Ok(facts)
        }
        HttpVersion::Two { .. } => multiplexed::<Http2>(opener, kind, session, request).await,
        HttpVersion::Three { .. } => multiplexed::<Http3>(opener, kind, session, request).await,
    }
}

async fn multiplexed<C: Multiplexed>(
    opener: &Opener,
    kind: &Kind,
    session: Option<SavedSession>,
    request: &Request,
) -> Result<Option<ClientFacts>, Failure> {
    let one = PerConnection::Requests(NonZeroU32::MIN);
    let connection = C::open(opener, kind, session, one, request).await?;
    let facts = connection.facts();
    connection.exchange(request).await?;
    connection.close().await;
    Ok(facts)
}
