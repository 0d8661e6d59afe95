//! `/profile`: a profile of the process, sampled while the client waits.

use std::sync::Arc;
use std::thread;

use brisk_profile::{
    FREQUENCIES, FREQUENCY, Profile, ProfileError, ProfileOptions, ProfileRight, SCRIPT_SOURCE, SECONDS,
};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::oneshot;

use super::answers::{is_without_name, not_allowed, text};
use crate::WorkerLoad;
use crate::watchdog::Pulse;

pub(super) const PATH: &str = "/profile";

/// Default length of a profile in seconds.
const USUAL_SECONDS: u64 = 10;

/// Number of workers listed in a flame graph, the busiest first.
const WORKERS: usize = 8;

/// Parameters of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    order: ProfileOptions,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Pprof,
    Folded,
}

/// A request for a profile.
pub(super) enum Begun {
    /// The request has its response: a refusal.
    Answered(Response<Full<Bytes>>),
    /// The response follows at the end of the profile.
    Running(Running),
}

/// A profile in progress. Dropping `Running`, as when the client disconnects, ends the profile.
pub(super) struct Running {
    format: Format,
    body: oneshot::Receiver<Result<Vec<u8>, ProfileError>>,
}

/// Starts the requested profile, or returns a refusal with its reason.
pub(super) fn begin<B>(request: &Request<B>, pulse: &Arc<Pulse>) -> Begun {
    let refused = |status, message: &str| Begun::Answered(text(status, format!("{message}\n")));
    if request.method() != Method::GET {
        return Begun::Answered(not_allowed("GET", "only GET\n"));
    }
    if !is_without_name(request) {
        let message = "not shown under a name: ask by the listener's IP address, or by localhost";
        return refused(StatusCode::MISDIRECTED_REQUEST, message);
    }
    // A foreign page can make a browser on this machine send the request, but not without this header. Over plain
    // HTTP, browsers omit it unless the listener is on loopback.
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site != "none" && site != "same-origin") {
        return refused(StatusCode::FORBIDDEN, "not for pages of other sites in a browser");
    }
    let asked = match Asked::of(request.uri().query().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(message) => return refused(StatusCode::BAD_REQUEST, &message),
    };
    let Some(turn) = ProfileRight::claim() else {
        let message =
            "a profile is being taken already, and one is taken at a time: ask again when it is done";
        return refused(StatusCode::CONFLICT, message);
    };
    match start(turn, asked, Arc::clone(pulse)) {
        Ok(running) => Begun::Running(running),
        Err(error) => refused(StatusCode::SERVICE_UNAVAILABLE, &format!("no thread to be had: {error}")),
    }
}

/// Starts the thread that takes a profile. The process does not wait for it when it ends.
fn start(turn: ProfileRight, asked: Asked, pulse: Arc<Pulse>) -> std::io::Result<Running> {
    let (sender, body) = oneshot::channel();
    let Asked { order, format } = asked;
    // Not `spawn_blocking`: a runtime that ends waits for such tasks.
    thread::Builder::new().name("profile".to_owned()).spawn(move || {
        tracing::info!(seconds = order.seconds, frequency = order.frequency, "a profile is being taken");
        // Ends early if the client disconnects.
        let taken = turn.take(order, || sender.is_closed());
        match &taken {
            Ok(profile) => {
                let gaps = profile.gaps().join(" ");
                tracing::info!(samples = profile.samples(), gaps, "the profile was taken");
            }
            Err(error) => tracing::info!(%error, "no profile was taken"),
        }
        // The client may be gone.
        let _ = sender.send(taken.map(|profile| format.of(&profile, &pulse)));
    })?;
    Ok(Running { format, body })
}

impl Running {
    pub(super) async fn answer(self) -> Response<Full<Bytes>> {
        let body = match self.body.await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                let is_permanent = error.is_permanent();
                let status =
                    if is_permanent { StatusCode::NOT_IMPLEMENTED } else { StatusCode::SERVICE_UNAVAILABLE };
                return text(status, format!("{error}\n"));
            }
            Err(_) => {
                let message = "the profile failed, as the log says\n";
                return text(StatusCode::INTERNAL_SERVER_ERROR, message);
            }
        };
        let mut response = text(StatusCode::OK, body);
        let (kind, disposition) = match self.format {
            Format::Svg => ("image/svg+xml", "inline; filename=\"brisk.svg\""),
            Format::Pprof => ("application/octet-stream", "attachment; filename=\"brisk.pb.gz\""),
            Format::Folded => ("text/plain; charset=utf-8", "inline; filename=\"brisk.folded\""),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // A second protection beside the escaping of names: no script but that of the
        // graph, and no connection.
        let policy = format!("default-src 'none'; style-src 'unsafe-inline'; script-src {SCRIPT_SOURCE}");
        let policy = HeaderValue::try_from(policy).expect("a policy in ASCII");
        headers.insert(CONTENT_SECURITY_POLICY, policy);
        response
    }
}

impl Asked {
    fn of(query: &str) -> Result<Self, String> {
        let order = ProfileOptions { seconds: USUAL_SECONDS, frequency: FREQUENCY };
        let mut asked = Self { order, format: Format::Svg };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let shown = value.chars().take(40).collect::<String>();
            match name {
                "seconds" => asked.order.seconds = number(name, value, &SECONDS)?,
                "frequency" => asked.order.frequency = number(name, value, &FREQUENCIES)?,
                "format" => {
                    asked.format = match value {
                        "svg" => Format::Svg,
                        "pprof" => Format::Pprof,
                        "folded" => Format::Folded,
                        _ => return Err(format!("format={shown:?}: there are svg, pprof and folded")),
                    }
                }
                _ => {
                    let name = name.chars().take(40).collect::<String>();
                    return Err(format!("{name:?} is unknown: there are seconds, frequency and format"));
                }
            }
        }
        Ok(asked)
    }
}

fn number<T>(name: &str, value: &str, range: &std::ops::RangeInclusive<T>) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let parsed = value.parse().ok().filter(|number| range.contains(number));
    let shown = value.chars().take(40).collect::<String>();
    parsed.ok_or_else(|| {
        format!("{name}={shown:?}: write a whole number from {} to {}", range.start(), range.end())
    })
}

impl Format {
    fn of(self, profile: &Profile, pulse: &Pulse) -> Vec<u8> {
        match self {
            Self::Svg => profile.flame_graph(&notes(pulse.loads())).into_bytes(),
            Self::Pprof => profile.pprof(),
            Self::Folded => profile.folded().into_bytes(),
        }
    }
}

/// Load of the workers, the busiest first.
fn notes(loads: Vec<WorkerLoad>) -> Vec<String> {
    let mut loads: Vec<_> = loads.into_iter().enumerate().collect();
    loads.sort_by(|(_, one), (_, other)| other.busy.total_cmp(&one.busy));
    let line = |(number, load): &(usize, WorkerLoad)| {
        format!(
            "worker-{number}: busy {:.0} % of the last second, event loop late by {:.1} ms at worst in the last minute{}",
            100.0 * load.busy,
            1000.0 * load.delay.as_secs_f64(),
            if load.is_stuck { ", blocked now" } else { "" }
        )
    };
    let mut lines: Vec<_> = loads.iter().take(WORKERS).map(line).collect();
    if let Some(others) = loads.len().checked_sub(WORKERS).filter(|others| *others > 0) {
        lines.push(format!("{others} other workers are less busy."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_asked_for_is_read_and_all_else_is_refused_with_what_is_right() {
        let asked =
            |seconds, frequency, format| Ok(Asked { order: ProfileOptions { seconds, frequency }, format });
        assert_eq!(Asked::of(""), asked(10, 99, Format::Svg));
        assert_eq!(Asked::of("seconds=60&format=pprof"), asked(60, 99, Format::Pprof));
        assert_eq!(Asked::of("format=folded&frequency=1000&seconds=1"), asked(1, 1000, Format::Folded));
        for wrong in ["0", "61", "-1", "", "1e9", "1.5", "ten", "18446744073709551617"] {
            let expected = format!("seconds={wrong:?}: write a whole number from 1 to 60");
            assert_eq!(Asked::of(&format!("seconds={wrong}")), Err(expected));
        }
        for wrong in ["0", "1001", "x"] {
            let expected = format!("frequency={wrong:?}: write a whole number from 1 to 1000");
            assert_eq!(Asked::of(&format!("frequency={wrong}")), Err(expected));
        }
        let expected = "format=\"html\": there are svg, pprof and folded";
        assert_eq!(Asked::of("format=html"), Err(expected.to_owned()));
        let expected = "\"second\" is unknown: there are seconds, frequency and format";
        assert_eq!(Asked::of("second=1"), Err(expected.to_owned()));
        assert!(Asked::of(&"x".repeat(10_000)).expect_err("unknown").len() < 200);
    }

    #[test]
    fn the_busiest_workers_are_noted_first() {
        let load = |busy, is_stuck| WorkerLoad {
            busy,
            busy_time: Duration::ZERO,
            delay: Duration::from_micros(1500),
            is_stuck,
        };
        let lines = notes(vec![load(0.25, false), load(0.5, true)]);
        let rest = "event loop late by 1.5 ms at worst in the last minute";
        assert_eq!(lines[0], format!("worker-1: busy 50 % of the last second, {rest}, blocked now"));
        assert_eq!(lines[1], format!("worker-0: busy 25 % of the last second, {rest}"));
        let lines = notes(vec![load(0.1, false); 20]);
        assert_eq!((lines.len(), lines[8].as_str()), (9, "12 other workers are less busy."));
    }
}
