//! Handshakes over loopback: the server's processor time for each kind.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use brisk_net::{ConnectOptions, connect_from};
use brisk_telemetry::Resumption;
use brisk_tls_client::{
    Client, ClientSettings, ClientStream, KeyShares, SavedSession, SessionUse, Verification,
};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::cores::Cores;
use crate::measure::median;
use crate::result::{Cost, Forecast, Handshake};
use crate::server::{NAME, Server, Usage, UsageRequest};
use crate::settings::Pace;
use crate::{Progress, SpeedError, join};

/// Number of measured kinds of handshake.
pub(crate) const MEASURED: usize = KINDS.len();

const KINDS: [Handshake; 4] =
    [Handshake::EcdsaP256, Handshake::EcdsaP256MlKem768, Handshake::Rsa2048, Handshake::Resumed];

/// Concurrent connections: enough to keep the [`Server`] busy.
const LANES: u32 = 16;

/// Range of the last byte of the source addresses, `127.0.1.2` and so on. Several are needed, because a port may stay
/// occupied for a minute after its connection was closed (`TIME_WAIT`).
const SOURCES: (u32, u32) = (2, 250);

/// Interval at which [`Usage`] is requested until all connections have ended.
const MOMENT: Duration = Duration::from_millis(1);

/// Runs the server on the measured core and its clients on others.
pub(crate) fn measure(
    cores: &Cores,
    pace: Pace,
    progress: &mut Progress<'_>,
) -> Result<Vec<Forecast>, SpeedError> {
    let server = Server::new()?;
    let address = server.address()?;
    let (requests, asked) = mpsc::channel(1);
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            cores.occupy()?;
            server.run(asked)
        });
        let measured = scope.spawn(|| {
            cores.leave()?;
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let load = Load { address, requests };
            LocalSet::new().block_on(&runtime, load.run(pace, progress))
        });
        let measured = join(measured);
        // The server's error first: an error of the server makes the clients fail too.
        join(served)?;
        measured
    })
}

/// The clients.
struct Load {
    address: SocketAddr,
    requests: mpsc::Sender<UsageRequest>,
}

impl Load {
    async fn run(self, pace: Pace, progress: &mut Progress<'_>) -> Result<Vec<Forecast>, SpeedError> {
        let mut kinds = Vec::new();
        for handshake in KINDS {
            kinds.push(Kind::prepare(handshake, self.address).await?);
        }
        // In turn, so that a temporary load by other programs affects all kinds equally.
        for _ in 0..pace.rounds {
            for kind in &mut kinds {
                let cost = self.round(kind, pace.slice).await?;
                progress.step(kind.handshake.title(), cost.rate());
            }
        }
        Ok(kinds.into_iter().map(Kind::forecast).collect())
    }

    /// Measures one kind of handshake for `time`.
    async fn round(&self, kind: &mut Kind, time: Duration) -> Result<Cost, SpeedError> {
        // At rest, so that the end of a connection is part of the same round as its handshake.
        let before = self.usage_at_rest().await?;
        let until = Instant::now() + time;
        let mut lanes = JoinSet::new();
        for number in 0..LANES {
            lanes.spawn_local(kind.caller.clone().call(number, until));
        }
        // A failed handshake ends the run, since its cost would be a part of the others.
        lanes.join_all().await.into_iter().collect::<Result<(), _>>()?;
        let after = self.usage_at_rest().await?;
        let count = after.handshakes - before.handshakes;
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / count.max(1) as f64;
        kind.count += count;
        kind.costs.push(cpu);
        Ok(Cost { count, cpu })
    }

    /// Waits until the server has no connection, and returns its [`Usage`].
    async fn usage_at_rest(&self) -> Result<Usage, SpeedError> {
        loop {
            let (request, answer) = oneshot::channel();
            let ended = || SpeedError::System(ErrorKind::NotConnected.into());
            self.requests.send(request).await.map_err(|_| ended())?;
            let usage = answer.await.map_err(|_| ended())?;
            if usage.open == 0 {
                return Ok(usage);
            }
            sleep(MOMENT).await;
        }
    }
}

/// One kind of handshake, and its measurements so far.
struct Kind {
    handshake: Handshake,
    caller: Caller,
    count: u64,
    /// The server's processor time per handshake in microseconds, for each round.
    costs: Vec<f64>,
}

impl Kind {
    /// Connects once, and fetches a session for [`Handshake::Resumed`].
    async fn prepare(handshake: Handshake, address: SocketAddr) -> Result<Self, SpeedError> {
        let client = Client::new(settings(handshake))?;
        let mut caller = Caller { address, client, session: Rc::new(None), expected: Resumption::Full };
        // The first handshake initialises state that later ones reuse.
        let mut stream = caller.connect(0).await?;
        if handshake == Handshake::Resumed {
            caller.session = Rc::new(stream.next_session().await?);
            caller.expected = Resumption::Psk;
        }
        Ok(Self { handshake, caller, count: 0, costs: Vec::new() })
    }

    fn forecast(self) -> Forecast {
        let cpu = median(self.costs).expect("there is a round at least");
        Forecast { handshake: self.handshake, cost: Ok(Cost { count: self.count, cpu }) }
    }
}

/// Settings of a client that costs as little as possible, so that the server is the bottleneck.
fn settings(handshake: Handshake) -> ClientSettings {
    let mut settings = ClientSettings::new(NAME);
    settings.versions = vec![ProtocolVersion::TLS1_3];
    settings.suites = vec![CipherSuite::TLS_AES_128_GCM_SHA256];
    // One group and one scheme: the server has no choice, and the row measures the named algorithms.
    settings.groups = vec![NamedGroup::X25519];
    settings.schemes = vec![SignatureScheme::ECDSA_SECP256R1_SHA256];
    settings.protocols = vec!["http/1.1".to_owned()];
    settings.verification = Verification::Off;
    settings.key_shares = KeyShares::Unit;
    match handshake {
        Handshake::EcdsaP256MlKem768 => settings.groups = vec![NamedGroup::X25519MLKEM768],
        Handshake::Rsa2048 => settings.schemes = vec![SignatureScheme::RSA_PSS_RSAE_SHA256],
        Handshake::Resumed => settings.session_use = SessionUse::Many,
        _ => {}
    }
    settings
}

/// Performs handshakes of one kind.
#[derive(Clone)]
struct Caller {
    address: SocketAddr,
    client: Client,
    session: Rc<Option<SavedSession>>,
    expected: Resumption,
}

impl Caller {
    /// Performs handshakes until `until`, at least one.
    async fn call(self, lane: u32, until: Instant) -> Result<(), SpeedError> {
        let mut number = lane;
        loop {
            let mut stream = self.connect(number).await?;
            // An error is ignored, because the client's handshake has succeeded.
            let _ = stream.shutdown().await;
            if Instant::now() >= until {
                return Ok(());
            }
            // Lanes have disjoint numbers and thus different source addresses, without a shared counter.
            number += LANES;
        }
    }

    async fn connect(&self, number: u32) -> Result<ClientStream, SpeedError> {
        let (low, high) = SOURCES;
        let source = Ipv4Addr::new(127, 0, 1, (low + number % (high - low + 1)) as u8);
        let options = ConnectOptions { source: Some(source.into()), ..ConnectOptions::default() };
        let tcp = connect_from(self.address, options).await?;
        let session = self.session.as_ref().as_ref().and_then(SavedSession::try_clone);
        let stream = self.client.connect(tcp, session, None).await?;
        let found = stream.facts().resumption;
        // A full handshake among resumed ones would raise their cost unnoticed.
        if found == self.expected {
            return Ok(stream);
        }
        Err(SpeedError::Unlike { wanted: self.expected.name(), found: found.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Observer, Step};

    struct Count(u32);

    impl Observer for Count {
        fn step(&mut self, step: &Step<'_>) {
            self.0 += 1;
            assert_eq!(step.done, self.0);
        }
    }

    #[test]
    fn every_kind_is_what_it_is_called() {
        let cores = Cores::choose(None).unwrap();
        let pace = Pace { rounds: 3, slice: Duration::from_millis(20) };
        let mut observer = Count(0);
        let mut progress = Progress { observer: &mut observer, done: 0, of: 12 };
        let forecasts = measure(&cores, pace, &mut progress).unwrap();
        assert!(forecasts.iter().map(|forecast| forecast.handshake).eq(KINDS));
        for forecast in forecasts {
            let cost = forecast.cost.unwrap();
            // Every lane completes at least one handshake.
            assert!(cost.count >= u64::from(3 * LANES), "{forecast:?}");
            assert!(cost.cpu > 0.0, "{forecast:?}");
        }
        assert_eq!(observer.0, 12);
    }
}
