//! The times of `curl -w`, for four kinds of connections, over several rounds.

use std::time::{Duration, Instant};

use brisk_experiment::estimate;
use brisk_handshake_view::steps::millis;
use brisk_tls_client::EarlyOutcome;
use serde::Serialize;

use crate::error::ProbeError;
use crate::prober::{Mode, Prober, Trip};
use crate::trace::Milestones;
use crate::{Settings, block_on};

/// Times of `curl -w`, each since the beginning, in its order.
pub const NAMES: [&str; 6] = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"];

/// Kinds of connections, in the order of the columns.
pub const KINDS: [&str; 4] = ["first", "resumed", "0-RTT", "kept"];

/// The place of `starttransfer` among [`NAMES`].
const STARTTRANSFER: usize = 4;

/// The times of one connection, in milliseconds, in the order of [`NAMES`].
type Sample = [f64; 6];

/// The median of some times, with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    /// The median, in milliseconds.
    pub median: f64,
    /// Ends of its interval. With fewer than six values it has less than 95 %.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Median {
    /// Of values; `None` without any.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let found = estimate(values)?;
        Some(Self { median: found.median, low: found.low, high: found.high })
    }
}

/// A kind of connection.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// How often it was measured.
    pub count: usize,
    /// Why it was not, in the last round where it was not.
    pub missing: Option<String>,
    /// Median times, in the order of [`NAMES`]; empty where there are none.
    pub times: Vec<Median>,
}

/// All four kinds.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// The URL.
    pub url: String,
    /// Rounds.
    pub rounds: usize,
    /// Names of the times.
    pub names: [&'static str; 6],
    /// The kinds, in the order of [`KINDS`].
    pub columns: Vec<Column>,
    /// Why the server's certificate is not trusted.
    pub distrust: Option<String>,
}

impl Timing {
    /// The median time to the first byte on a first connection, in milliseconds.
    pub fn first_byte_ms(&self) -> Option<f64> {
        self.columns.first()?.times.get(STARTTRANSFER).map(|time| time.median)
    }
}

/// Measures `rounds` rounds: a first connection, a further request on it, a resumed one, and one with early data. `progress`
/// is called before each.
pub fn timing(
    settings: &Settings,
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Timing, ProbeError> {
    let prober = Prober::new(settings)?;
    block_on(async {
        let mut rows = Rows::default();
        for round in 1..=rounds {
            progress(&format!("round {round} of {rounds}"));
            rows.round(&prober).await?;
        }
        let columns = KINDS.iter().enumerate().map(|(index, kind)| rows.column(index, kind)).collect();
        Ok(Timing { url: settings.url.to_string(), rounds, names: NAMES, columns, distrust: rows.distrust })
    })?
}

#[derive(Debug, Default)]
struct Rows {
    samples: [Vec<Sample>; 4],
    missing: [Option<String>; 4],
    distrust: Option<String>,
}

impl Rows {
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
        self.note(1, &resumed);
        let session = resumed.session().await;
        if let Some(error) = resumed.close().await {
            return Err(error);
        }
        self.early(prober, session).await
    }

    /// A resumed connection may bring no session: then a full one does.
    async fn early(
        &mut self,
        prober: &Prober<'_>,
        session: Option<crate::prober::Ready>,
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
        let Some(session) = session.filter(crate::prober::Ready::takes_early_data) else {
            self.missing[2] = Some("the server's sessions do not allow early data".to_owned());
            return Ok(());
        };
        let mut early = prober.trip(Some(session), true).await;
        self.note(2, &early);
        early.close().await.map_or(Ok(()), Err)
    }

    /// Takes a connection in, if it became what it was meant to be.
    fn note(&mut self, kind: usize, trip: &Trip) {
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

fn sample(trip: &Trip) -> Option<Sample> {
    let times = &trip.trace.milestones;
    let since = |at: Instant| millis(at.saturating_duration_since(trip.began));
    let is_early = trip.trace.facts.as_ref()?.early_data == EarlyOutcome::Accepted;
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

/// Of a request on a connection that was there: as curl, name, connection and handshake took no time.
fn kept(times: &Milestones, began: Instant) -> Sample {
    let since =
        |at: Option<Instant>| millis(at.map_or(Duration::ZERO, |at| at.saturating_duration_since(began)));
    [0.0, 0.0, 0.0, since(times.asked), since(times.first_byte), since(times.done)]
}
