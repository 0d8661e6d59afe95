//! A visitor: a client of one gateway, which checks each byte, and repeats nothing.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_behaviour::site::NAME;
use brisk_testkit::client::TlsClient;
use brisk_testkit::random::Random;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use crate::ask::{Ask, Version};
use crate::fault::Failure;
use crate::shared::{Outcome, Shared};

/// Concurrent requests on a connection over HTTP/2.
const CONCURRENT: usize = 4;

/// Pause between requests, 0 to this number of milliseconds. Gateways of a debug build, beside other tests, must not be overloaded.
const PAUSE: usize = 250;

/// Use of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Requests on a kept connection over HTTP/1.1.
    Kept,
    /// A new connection for each request, which resumes a session.
    Resumed,
    /// A new connection for each request, with a full handshake.
    Full,
    /// Concurrent requests on a kept connection over HTTP/2.
    Multiplexed,
}

pub(crate) struct Visitor {
    shared: Arc<Shared>,
    gateway: usize,
    address: SocketAddr,
    root: PathBuf,
    habit: Habit,
    random: Random,
    connector: TlsConnector,
    kept: Option<Connection>,
}

struct Connection {
    sender: Sender,
    is_used: bool,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

type Sent<'a> = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + 'a>>;

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    fn version(&self) -> Version {
        match self {
            Self::Http1(_) => Version::Http1,
            Self::Http2(_) => Version::Http2,
        }
    }

    fn send(&mut self, request: Request<Full<Bytes>>) -> Sent<'_> {
        match self {
            Self::Http1(sender) => Box::pin(sender.send_request(request)),
            Self::Http2(sender) => Box::pin(sender.send_request(request)),
        }
    }
}

fn connector(root: &Path, habit: Habit) -> TlsConnector {
    let protocol = if habit == Habit::Multiplexed { "h2" } else { "http/1.1" };
    TlsConnector::from(TlsClient::new(root, NAME).alpn(&[protocol]).config())
}

impl Visitor {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        gateway: usize,
        address: SocketAddr,
        root: PathBuf,
        habit: Habit,
        random: Random,
    ) -> Self {
        let (shared, connector) = (Arc::clone(shared), connector(&root, habit));
        Self { shared, gateway, address, root, habit, random, connector, kept: None }
    }

    /// Sends requests until the end of the run.
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !shared.has_ended() {
            if !shared.enter() {
                self.kept = None;
                sleep(Duration::from_millis(5)).await;
                continue;
            }
            self.turn().await;
            shared.leave();
            sleep(Duration::from_millis(self.random.below(PAUSE) as u64)).await;
        }
    }

    async fn turn(&mut self) {
        let count = if self.habit == Habit::Multiplexed { CONCURRENT } else { 1 };
        let asks: Vec<_> = (0..count).map(|_| Ask::random(self.shared.id(), &mut self.random)).collect();
        let kept = self.kept.take().filter(|connection| !connection.sender.is_closed());
        let begun = Instant::now();
        let opened = match kept {
            Some(connection) => Ok(connection),
            None => self.shared.within(self.connect()).await.unwrap_or_else(|| Err(late())),
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(outcome) => return self.note(begun, "connect", outcome),
        };
        let begun = Instant::now();
        let outcomes = self.exchange_all(&mut connection, &asks).await;
        connection.is_used = true;
        let is_right = outcomes.iter().all(|outcome| *outcome == Outcome::Right);
        // The end of a body that is cut ends the connection over HTTP/1.1, which is noticed before the next request.
        if is_right && matches!(self.habit, Habit::Kept | Habit::Multiplexed) {
            self.kept = Some(connection);
        }
        for (ask, outcome) in asks.iter().zip(outcomes) {
            self.note(begun, &ask.path(), outcome);
        }
    }

    async fn exchange_all(&self, connection: &mut Connection, asks: &[Ask]) -> Vec<Outcome> {
        let is_used = connection.is_used;
        match &mut connection.sender {
            Sender::Http1(_) => {
                let mut outcomes = Vec::with_capacity(asks.len());
                for ask in asks {
                    outcomes.push(self.exchange(&mut connection.sender, is_used, *ask).await);
                }
                outcomes
            }
            Sender::Http2(sender) => {
                let exchanges = asks.iter().map(|ask| {
                    let mut sender = Sender::Http2(sender.clone());
                    async move { self.exchange(&mut sender, is_used, *ask).await }
                });
                join_all(exchanges).await
            }
        }
    }

    async fn exchange(&self, sender: &mut Sender, is_used: bool, ask: Ask) -> Outcome {
        self.shared.within(self.request(sender, is_used, ask)).await.unwrap_or_else(late)
    }

    async fn request(&self, sender: &mut Sender, is_used: bool, ask: Ask) -> Outcome {
        let lost = if is_used { Failure::Stale } else { ask.failure(Failure::Closed) };
        if sender.ready().await.is_err() {
            return if is_used { Outcome::Unsent } else { Outcome::Failed(lost) };
        }
        self.shared.sent(self.gateway);
        let request = ask.request(sender.version());
        let response = match sender.send(request).await {
            Ok(response) => response,
            // The connection had ended before the request was written.
            Err(error) if error.is_canceled() && is_used => return Outcome::Unsent,
            Err(_) => return Outcome::Failed(lost),
        };
        self.shared.answered(self.gateway);
        let (head, body) = response.into_parts();
        let received = body.collect().await.ok().map(Collected::to_bytes);
        ask.judge(&head, received.as_deref())
    }

    async fn connect(&self) -> Result<Connection, Outcome> {
        let tcp = TcpStream::connect(self.address).await.map_err(|_| Outcome::Failed(Failure::Connect))?;
        tcp.set_nodelay(true).map_err(|_| Outcome::Failed(Failure::Closed))?;
        let connector = match self.habit {
            // Without the sessions of earlier connections.
            Habit::Full => connector(&self.root, self.habit),
            Habit::Kept | Habit::Resumed | Habit::Multiplexed => self.connector.clone(),
        };
        let name = ServerName::try_from(NAME).expect("a host name");
        let tls = connector.connect(name, tcp).await.map_err(|error| {
            // An alert, or a wrong certificate.
            let is_refused = error.kind() == io::ErrorKind::InvalidData;
            Outcome::Failed(if is_refused { Failure::Handshake } else { Failure::Closed })
        })?;
        let io = TokioIo::new(tls);
        let sender = if self.habit == Habit::Multiplexed {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|_| Outcome::Failed(Failure::Closed))?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) =
                http1::handshake(io).await.map_err(|_| Outcome::Failed(Failure::Closed))?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Connection { sender, is_used: false })
    }

    fn note(&self, begun: Instant, request: &str, outcome: Outcome) {
        self.shared.note(begun, self.gateway, format!("{:?} {request}", self.habit), outcome);
    }
}

fn late() -> Outcome {
    Outcome::Wrong("the request did not end within its deadline".to_owned())
}
