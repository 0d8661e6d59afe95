//! Times of `curl -w` for four kinds of connections over several rounds.

use std::time::{Duration, Instant};

use brisk_compare::estimate;
use brisk_handshake_view::steps::millis;
use brisk_tls_client::EarlyOutcome;
use serde::Serialize;

use crate::error::ProbeError;
use crate::prober::{Mode, ProbedConnection, Prober};
use crate::trace::Milestones;
use crate::{Settings, block_on};

/// Names of the times, in the order of `curl -w`. Each is the time since the begin.
pub const NAMES: [&str; 6] = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"];

/// Kinds of connections in the order of the columns.
pub const KINDS: [&str; 4] = ["first", "resumed", "0-RTT", "kept"];

/// Index of `starttransfer` in [`NAMES`].
const STARTTRANSFER: usize = 4;

/// Times of one connection in milliseconds, in the order of [`NAMES`].
type Sample = [f64; 6];

/// Median with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    /// Median in milliseconds.
    pub median: f64,
    /// Lower end of the interval. Fewer than six values give less than 95 % confidence.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Median {
    /// Median of `values`; `None` without values.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let found = estimate(values)?;
        Some(Self { median: found.median, low: found.low, high: found.high })
    }
}

/// Results for one kind of connection.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Number of measured connections.
    pub count: usize,
    /// Reason of the last round without a measurement.
    pub missing: Option<String>,
    /// Medians in the order of [`NAMES`]; empty without measurements.
    pub times: Vec<Median>,
}

/// Results for all kinds of connections.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// URL.
    pub url: String,
    /// Number of rounds.
    pub rounds: usize,
    /// Names of the times: [`NAMES`].
    pub names: [&'static str; 6],
    /// Results in the order of [`KINDS`].
    pub columns: Vec<Column>,
    /// Reason why the server's certificate is not trusted.
    pub distrust: Option<String>,
}

impl Timing {
    /// Median time to the first byte (`starttransfer`) of first connections, in milliseconds; `None` without one.
    pub fn first_byte_ms(&self) -> Option<f64> {
        self.columns.first()?.times.get(STARTTRANSFER).map(|time| time.median)
    }
}

/// Measures `rounds` rounds of all [`KINDS`]: a first connection, a further request on it, a resumed connection, and one
/// with early data. Calls `progress` before each round.
pub fn timing(
    settings: &Settings,
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Timing, ProbeError> {
    let prober = Prober::new(settings)?;
    block_on(async {
        let mut rows = Measurements::default();
        for round in 1..=rounds {
            progress(&format!("round {round} of {rounds}"));
            rows.round(&prober).await?;
        }
        let columns = KINDS.iter().enumerate().map(|(index, kind)| rows.column(index, kind)).collect();
        Ok(Timing { url: settings.url.to_string(), rounds, names: NAMES, columns, distrust: rows.distrust })
    })?
}

#[derive(Debug, Default)]
struct Measurements {
    samples: [Vec<Sample>; 4],
    missing: [Option<String>; 4],
    distrust: Option<String>,
}

impl Measurements {
    async fn round(&mut self, prober: &Prober<'_>) -> Result<(), ProbeError> {
        let mut first = prober.trip(None, false).await;
        self.note(0, &first);
        let began = Instant::now();
        match prober.again(&mut first).await {
            Some(Ok(trace)) => self.samples[3].push(kept(&trace.milestones, began)),
            Some(Err(error)) => self.missing[3] = Some(error.to_string()),
            None => self.missing[3] = Some("the server closes the connection after each answer".to_owned()),
        }
        let session = first.session().await;
        if let Some(error) = first.close().await {
            return Err(error);
        }
        let Some(session) = session else {
            let reason = "the server gives no session to be resumed";
            (self.missing[1], self.missing[2]) = (Some(reason.to_owned()), Some(reason.to_owned()));
            return Ok(());
        };
        let mut resumed = prober.trip(Some(session), false).await;
        // RFC 8446 appendix C.4: a ticket is used once, so early data takes a ticket of this connection.
        self.note(1, &resumed);
        let session = resumed.session().await;
        if let Some(error) = resumed.close().await {
            return Err(error);
        }
        self.early(prober, session).await
    }

    /// Measures early data. If the resumed connection issued no session, an additional full one provides it.
    async fn early(
        &mut self,
        prober: &Prober<'_>,
        session: Option<crate::prober::ResumableSession>,
    ) -> Result<(), ProbeError> {
        let session = if session.is_some() {
            session
        } else {
            let mut extra = prober.trip(None, false).await;
            let session = extra.session().await;
            if let Some(error) = extra.close().await {
                return Err(error);
            }
            session
        };
        let Some(session) = session.filter(crate::prober::ResumableSession::takes_early_data) else {
            self.missing[2] = Some("the server's sessions do not allow early data".to_owned());
            return Ok(());
        };
        let mut early = prober.trip(Some(session), true).await;
        self.note(2, &early);
        early.close().await.map_or(Ok(()), Err)
    }

    /// Records a connection of the intended kind, or the reason why it is not.
    fn note(&mut self, kind: usize, trip: &ProbedConnection) {
        if self.distrust.is_none() {
            self.distrust = trip.trace.verdict().distrust().map(str::to_owned);
        }
        let mode = [Mode::Full, Mode::Resume, Mode::Early][kind];
        match trip.missed(mode) {
            None => self.samples[kind].extend(sample(trip)),
            missed => self.missing[kind] = missed,
        }
    }

    fn column(&self, index: usize, kind: &'static str) -> Column {
        let samples = &self.samples[index];
        let median = |name: usize| Median::of(samples.iter().map(move |sample| sample[name]));
        let times = (0..NAMES.len()).filter_map(median).collect();
        let missing = self.missing[index].clone();
        Column { kind, count: samples.len(), missing, times }
    }
}

fn sample(trip: &ProbedConnection) -> Option<Sample> {
    let times = &trip.trace.milestones;
    let since = |at: Instant| millis(at.saturating_duration_since(trip.began));
    let is_early = trip.trace.facts.as_ref()?.early_data == EarlyOutcome::Accepted;
    // Early data is in the first flight, so the request begins as soon as TCP has connected.
    let pretransfer = if is_early { times.connected? } else { times.asked? };
    Some([
        millis(trip.resolved),
        since(times.connected?),
        since(times.secured?),
        since(pretransfer),
        since(times.first_byte?),
        since(times.done?),
    ])
}

/// Sample of a request on an existing connection: as in curl, name, connection and handshake took no time.
fn kept(times: &Milestones, began: Instant) -> Sample {
    let since =
        |at: Option<Instant>| millis(at.map_or(Duration::ZERO, |at| at.saturating_duration_since(began)));
    [0.0, 0.0, 0.0, since(times.asked), since(times.first_byte), since(times.done)]
}
