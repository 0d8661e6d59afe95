//! Model of the time that a page load waits for connections to other origins, and of the load without them.
//!
//! Each request follows another: the one whose document names it, if the browser recorded this, otherwise the last
//! one that had ended when it began. A delay of a request delays all that follow it, and the page has loaded with the
//! last. So a connection counts only if the page waited for a request that waited for it; most are opened while the
//! page waits for others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use brisk_rewrite::{Origin, OriginMap};
use serde::Serialize;

use super::document::{Asked, Recording};

/// Maximum bytes of an origin's name in a path of the configuration: the path has up to 64.
const LABEL: usize = 48;

/// Milliseconds from which a lookup counts as a round trip: shorter ones were answered by a cache of this machine.
const LOOKUP: f64 = 1.0;

/// Findings about a page: its origins, and the time that each would save. Times are in milliseconds.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The origin of the page.
    pub(super) page: String,
    pub(super) requests: usize,
    pub(super) without_network: usize,
    pub(super) other_pages: usize,
    /// Elements of `log.entries` that could not be read.
    pub(super) skipped: usize,
    /// The first of the `skipped` entries, with the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_fault: Option<String>,
    /// Round-trip time in milliseconds; `None` uses the times of the recording.
    pub(super) rtt_ms: Option<f64>,
    /// Load time with all connections that the page opened, in milliseconds.
    pub(super) loaded_ms: f64,
    /// Load time without connections to other origins, in milliseconds.
    pub(super) loaded_consolidated_ms: f64,
    pub(super) saved_ms: f64,
    /// The page's own origin, then the others by saved time.
    pub(super) origins: Vec<Asks>,
    /// Recommended configuration in TOML; empty if nothing is saved.
    pub(super) toml: String,
}

/// One origin.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Asks {
    pub(super) origin: String,
    pub(super) requests: usize,
    pub(super) connections: usize,
    pub(super) bytes: u64,
    /// Round trips to look up, connect and agree on keys, of all its connections.
    pub(super) round_trips: u32,
    /// Difference of `loaded_ms` if this origin alone is consolidated.
    pub(super) saved_ms: f64,
    /// Whether requests change something there.
    pub(super) is_written: bool,
}

/// A request as a part of the page.
struct Step {
    origin: usize,
    /// Whether its URL is in a document that brisk rewrites; `false` for the page itself and for requests from scripts.
    is_named: bool,
    /// Index of the request that this one follows; `None` if none had ended before.
    after: Option<usize>,
    /// Recorded wait for a connection: for its own, or for one that another request had opened, in milliseconds.
    waited: f64,
    /// `waited`, scaled to the selected round-trip time.
    waits: f64,
    end: f64,
}

impl Findings {
    /// Analyses `recording` for visitors with the round-trip time `rtt`, or as recorded. An `Err` names the missing part
    /// of the recording.
    pub(super) fn of(recording: &Recording, rtt: Option<Duration>) -> Result<Self, String> {
        let rtt = rtt.map(|rtt| rtt.as_secs_f64() * 1000.0);
        let asked = &recording.asked;
        let (names, origins) = origins(asked);
        // A redirect has no document that could name other requests.
        let document = asked.iter().position(|asked| !asked.is_redirect).ok_or("no request has an answer")?;
        let own = origins[document];
        let mut all: Vec<_> = names.into_iter().map(|origin| Asks { origin, ..Asks::default() }).collect();
        let mut steps = steps(asked, &origins, rtt);
        for (step, asked) in steps.iter_mut().zip(asked).skip(document + 1) {
            step.is_named = !asked.is_by_script;
        }
        count(asked, &origins, &mut all);
        let last = recording.loaded.unwrap_or(f64::INFINITY);
        let page = Timeline { steps, last };
        let before = page.loaded(|_| false);
        for (index, origin) in all.iter_mut().enumerate().filter(|(index, _)| *index != own) {
            origin.saved_ms = before - page.loaded(|other| other == index);
        }
        let after = page.loaded(|other| other != own);
        let own_origin = all.remove(own);
        all.sort_by(|one, other| {
            other.saved_ms.total_cmp(&one.saved_ms).then(other.requests.cmp(&one.requests))
        });
        let toml = toml(&own_origin, &all);
        let page = own_origin.origin.clone();
        all.insert(0, own_origin);
        Ok(Self {
            page,
            requests: asked.len(),
            without_network: recording.without_network,
            other_pages: recording.other_pages,
            skipped: recording.skipped,
            first_fault: recording.first_fault.clone(),
            rtt_ms: rtt,
            loaded_ms: before,
            loaded_consolidated_ms: after,
            saved_ms: before - after,
            origins: all,
            toml,
        })
    }
}

/// The origins, and that of each request.
fn origins(asked: &[Asked]) -> (Vec<String>, Vec<usize>) {
    let mut names = Vec::new();
    let mut found = HashMap::new();
    let of_each = asked.iter().map(|asked| {
        let name = origin(&asked.url);
        *found.entry(name.clone()).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    });
    let of_each = of_each.collect();
    (names, of_each)
}

/// The [`Origin`] of a URL as text; the URL up to its path if it is no usual one.
fn origin(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    url[..end].parse::<Origin>().map_or_else(
        |_| url[..end].chars().take(100).collect::<String>().escape_debug().to_string(),
        |origin| origin.to_string(),
    )
}

/// Round trips that a request waited for its own connection: one for TCP or QUIC, one for TLS, and a lookup.
fn round_trips(asked: &Asked) -> u32 {
    let lookup = u32::from(asked.dns >= LOOKUP);
    if asked.connect <= 0.0 {
        return 0;
    }
    // QUIC has one for both.
    lookup + 1 + u32::from(asked.tls > 0.0 && !asked.is_quic)
}

fn count(asked: &[Asked], origins: &[usize], all: &mut [Asks]) {
    let mut connections: BTreeMap<usize, HashSet<&str>> = BTreeMap::new();
    let mut opened = vec![0; all.len()];
    for (asked, &index) in asked.iter().zip(origins) {
        let origin = &mut all[index];
        origin.requests += 1;
        origin.bytes = origin.bytes.saturating_add(asked.bytes as u64);
        origin.round_trips += round_trips(asked);
        origin.is_written |= !asked.is_read;
        opened[index] += usize::from(asked.connect > 0.0);
        if let Some(name) = &asked.connection {
            connections.entry(index).or_default().insert(name);
        }
    }
    for (index, origin) in all.iter_mut().enumerate() {
        let named = connections.get(&index).map_or(0, HashSet::len);
        origin.connections = named.max(opened[index]);
    }
}

fn steps(asked: &[Asked], origins: &[usize], rtt: Option<f64>) -> Vec<Step> {
    let mut by_url: HashMap<&str, usize> = HashMap::new();
    // For each connection, when it was ready, how long it took, and its duration per recorded millisecond.
    let mut opened: HashMap<(usize, &str), (f64, f64)> = HashMap::new();
    let mut steps: Vec<Step> = Vec::with_capacity(asked.len());
    // The latest end so far that a later start could follow; requests are in the order of their starts.
    for (index, request) in asked.iter().enumerate() {
        let named = request.initiator.as_deref().and_then(|url| by_url.get(url)).copied();
        let after = named.or_else(|| {
            // A tolerance of a millisecond, since most files round starts to whole ones.
            let earlier = steps.iter().enumerate().filter(|(_, step)| step.end <= request.start + 1.0);
            earlier.max_by(|(_, one), (_, other)| one.end.total_cmp(&other.end)).map(|(index, _)| index)
        });
        let key = request.connection.as_deref().map(|name| (origins[index], name));
        let trips = f64::from(round_trips(request));
        let (waited, waits) = if trips > 0.0 {
            let waited = request.connect + if request.dns >= LOOKUP { request.dns } else { 0.0 };
            let waits = rtt.map_or(waited, |rtt| trips * rtt);
            if let Some(key) = key {
                let there = request.start + request.blocked + request.dns + request.connect;
                opened.insert(key, (there, waits / waited.max(f64::MIN_POSITIVE)));
            }
            (waited, waits)
        } else if let Some((there, scale)) = key.and_then(|key| opened.get(&key)) {
            // Not longer than `blocked`, the recorded wait for a connection.
            let waited = (there - request.start).clamp(0.0, request.blocked);
            (waited, waited * scale)
        } else {
            (0.0, 0.0)
        };
        let end = request.start + request.time;
        steps.push(Step { origin: origins[index], is_named: false, after, waited, waits, end });
        by_url.entry(&request.url).or_insert(index);
    }
    steps
}

struct Timeline {
    steps: Vec<Step>,
    /// Recorded load time.
    last: f64,
}

impl Timeline {
    /// The load time if the selected origins need no connection.
    fn loaded(&self, is_consolidated: impl Fn(usize) -> bool) -> f64 {
        let mut shifts: Vec<f64> = Vec::with_capacity(self.steps.len());
        let (mut loaded, mut any) = (0.0_f64, 0.0_f64);
        for step in &self.steps {
            let waits = if step.is_named && is_consolidated(step.origin) { 0.0 } else { step.waits };
            let shift = step.after.map_or(0.0, |after| shifts[after]) + waits - step.waited;
            shifts.push(shift);
            any = any.max(step.end + shift);
            // The page did not wait for requests that ended after the load event.
            if step.end <= self.last + 1.0 {
                loaded = loaded.max(step.end + shift);
            }
        }
        if loaded > 0.0 { loaded } else { any }
    }
}

/// Configuration for the origins that save time.
fn toml(own: &Asks, others: &[Asks]) -> String {
    let host = |origin: &str| origin.parse::<Origin>().ok().map(|origin| origin.host().to_owned());
    let Some(name) = host(&own.origin) else { return String::new() };
    let mut taken = Vec::new();
    let mut entries = Vec::new();
    for origin in others.iter().filter(|origin| origin.saved_ms >= 1.0).take(OriginMap::MOST_ORIGINS) {
        let Some(host) = host(&origin.origin) else { continue };
        let label = host.split('.').next().unwrap_or_default().replace(['[', ']', ':'], "");
        let short = format!("/_{}", label.get(..LABEL).unwrap_or(&label));
        // Two hosts may begin with the same label, such as `cdn`.
        let numbered = (2..).map(|number| format!("{short}_{number}"));
        let mut paths = std::iter::once(short.clone()).chain(numbered);
        let Some(path) = paths.find(|path| !taken.contains(path)) else { continue };
        entries.push(format!("    {:?} = {path:?}\n", origin.origin));
        taken.push(path);
    }
    if entries.is_empty() {
        return String::new();
    }
    format!("[[host]]\nnames = [{name:?}]\n\n    [host.consolidate]\n{}", entries.concat())
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "whole milliseconds are exact")]
mod tests {
    use super::*;

    fn asked(url: &str, start: f64, time: f64) -> Asked {
        Asked {
            url: url.to_owned(),
            initiator: None,
            is_by_script: false,
            is_read: true,
            is_redirect: false,
            is_quic: false,
            start,
            time,
            blocked: 0.0,
            dns: 0.0,
            connect: 0.0,
            tls: 0.0,
            connection: None,
            bytes: 100.0,
        }
    }

    /// On a connection of its own, with TLS.
    fn opening(asked: Asked, dns: f64, connect: f64) -> Asked {
        Asked { dns, connect, tls: connect / 2.0, ..asked }
    }

    fn findings(asked: Vec<Asked>, rtt: Option<u64>) -> Findings {
        let recording = Recording { asked, ..Recording::default() };
        Findings::of(&recording, rtt.map(Duration::from_millis)).expect("a page")
    }

    #[test]
    fn only_connections_that_the_page_waited_for_count() {
        let page = vec![
            opening(asked("https://www.example/", 0.0, 300.0), 20.0, 100.0),
            // The page waits for this one: 120 of its milliseconds are its connection's.
            opening(asked("https://static.example/a.js", 300.0, 400.0), 20.0, 100.0),
            // This one is done while the page waits.
            opening(asked("https://other.example/i.png", 300.0, 200.0), 20.0, 100.0),
        ];
        let found = findings(page.clone(), None);
        assert_eq!((found.page.as_str(), found.loaded_ms), ("https://www.example", 700.0));
        let saved: Vec<_> =
            found.origins.iter().map(|origin| (origin.origin.as_str(), origin.saved_ms)).collect();
        assert_eq!(
            saved,
            [("https://www.example", 0.0), ("https://static.example", 120.0), ("https://other.example", 0.0)]
        );
        assert_eq!((found.saved_ms, found.origins[1].round_trips), (120.0, 3));
        assert!(
            found.toml.contains("\"https://static.example\" = \"/_static\"") && !found.toml.contains("other")
        );
        // Three round trips instead of 120 ms, for the page too.
        let slow = findings(page, Some(100));
        assert_eq!((slow.loaded_ms, slow.saved_ms), (300.0 + 180.0 + 400.0 + 180.0, 300.0));
    }

    #[test]
    fn another_way_to_wait_limits_what_is_saved() {
        let found = findings(
            vec![
                asked("https://www.example/", 0.0, 100.0),
                opening(asked("https://a.example/", 100.0, 300.0), 0.0, 100.0),
                opening(asked("https://b.example/", 100.0, 290.0), 0.0, 100.0),
            ],
            None,
        );
        assert_eq!(found.origins[1].saved_ms, 10.0, "b is there 10 ms earlier only");
        assert_eq!(found.saved_ms, 100.0);
    }

    #[test]
    fn requests_that_wait_for_a_connection_of_another_count() {
        let mut waiting = asked("https://a.example/2", 110.0, 400.0);
        (waiting.blocked, waiting.connection) = (90.0, Some("7".to_owned()));
        let mut first = opening(asked("https://a.example/1", 100.0, 150.0), 0.0, 100.0);
        first.connection = Some("7".to_owned());
        let found = findings(vec![asked("https://www.example/", 0.0, 100.0), first, waiting], None);
        assert_eq!(found.saved_ms, 90.0);
        assert_eq!((found.origins[1].connections, found.origins[1].round_trips), (1, 2));
    }

    #[test]
    fn what_scripts_ask_for_saves_nothing() {
        let page = asked("https://www.example/", 0.0, 100.0);
        let mut fetched = opening(asked("https://api.example/x", 100.0, 300.0), 0.0, 100.0);
        assert_eq!(findings(vec![page.clone(), fetched.clone()], None).saved_ms, 100.0);
        fetched.is_by_script = true;
        let found = findings(vec![page, fetched], None);
        assert_eq!((found.saved_ms, found.toml.as_str()), (0.0, ""));
    }

    #[test]
    fn what_is_printed_can_be_used_whatever_the_recording() {
        let mut page = vec![asked("https://www.example/", 0.0, 10.0)];
        for number in 0..40 {
            let url = format!("https://{}.n{number}.example/", "x".repeat(63));
            page.push(opening(asked(&url, 10.0 + 50.0 * f64::from(number), 50.0), 0.0, 40.0));
        }
        page.push(asked("https://\u{1b}]52;c;x\u{7}/", 5000.0, 1.0));
        let found = findings(page, None);
        let paths: Vec<_> = found.toml.lines().filter_map(|line| line.split_once(" = \"/")).collect();
        assert_eq!(paths.len(), OriginMap::MOST_ORIGINS);
        for (_, path) in paths {
            let path = format!("/{}", path.trim_end_matches('"'));
            path.parse::<brisk_rewrite::Prefix>().expect(&path);
        }
        let names = found.origins.iter().flat_map(|origin| origin.origin.chars());
        assert!(names.into_iter().all(|c| !c.is_control()));
    }

    #[test]
    fn a_page_alone_saves_nothing() {
        let mut redirect = opening(asked("http://www.example/", 0.0, 10.0), 0.0, 5.0);
        redirect.is_redirect = true;
        let found =
            findings(vec![redirect, opening(asked("https://www.example/", 10.0, 90.0), 0.0, 50.0)], Some(50));
        assert_eq!(
            (found.page.as_str(), found.saved_ms, found.toml.as_str()),
            ("https://www.example", 0.0, "")
        );
        assert!(findings(vec![asked("https://www.example/", 0.0, 1.0)], None).toml.is_empty());
        assert!(Findings::of(&Recording::default(), None).is_err());
    }
}
