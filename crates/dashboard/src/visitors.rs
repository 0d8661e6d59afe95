//! What visitors waited for, from the store of visits: quantiles over time, cuts, what changes would be worth, experiments.
//! Asked for on a thread that may wait, one question at a time.

use std::fmt::Display;

use brisk_visits::{Metric, Query, Reader, Span, Visits};
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::form;
use crate::responses::{self, Body};

/// The metrics whose quantiles are shown; they have histograms.
const SHOWN: [Metric; 3] = [Metric::Handshake, Metric::FirstByte, Metric::LargestPaint];

/// Hosts that can be chosen at most.
const HOSTS: usize = 2000;

/// Bytes of a host's name at most.
const LONGEST_NAME: usize = 255;

/// Answers `?span=hour|day|month&metric=ttfb&host=NAME`; without a host for all of them.
pub(crate) async fn answer(visits: &Visits, turn: &Semaphore, query: &str) -> Response<Body> {
    let Some(reader) = visits.reader() else { return responses::json(&json!({ "on": false })) };
    let Some(query) = asked(query) else {
        return responses::text(
            StatusCode::BAD_REQUEST,
            "write span=hour, day or month, and a metric such as ttfb\n",
        );
    };
    // It is never closed.
    let _turn = turn.acquire().await;
    let visits = visits.clone();
    let read = tokio::task::spawn_blocking(move || all(&visits, &reader, &query)).await;
    match read {
        Ok(all) => responses::json(&all),
        Err(_) => {
            responses::text(StatusCode::INTERNAL_SERVER_ERROR, "visits cannot be read, as the log says\n")
        }
    }
}

fn asked(query: &str) -> Option<Query> {
    let field = |name, usual: &str| {
        let value = form::field(query.as_bytes(), name, LONGEST_NAME);
        value.map_or_else(|| usual.to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
    };
    let host = Some(field("host", "")).filter(|host| !host.is_empty());
    Some(Query {
        host,
        span: Span::named(&field("span", "hour"))?,
        metric: Metric::named(&field("metric", "ttfb"))?,
    })
}

/// Everything at once. What cannot be read is `null`, and the first reason is beside it.
fn all(visits: &Visits, reader: &Reader, query: &Query) -> Value {
    let mut error = None;
    let status = visits.status();
    let series = SHOWN.map(|metric| {
        let query = Query { metric, ..query.clone() };
        value(reader.series(&query), &mut error)
    });
    let mut hosts = reader.hosts().unwrap_or_default();
    hosts.truncate(HOSTS);
    let (cuts, worth) = (value(reader.cuts(query), &mut error), value(reader.worth(query), &mut error));
    let experiments = value(reader.experiments(), &mut error);
    json!({
        "on": true,
        "recorded": status.recorded,
        "dropped": status.dropped,
        "bytes": status.bytes,
        "hosts": hosts,
        "series": series,
        "cuts": cuts,
        "worth": worth,
        "experiments": experiments,
        "error": status.error.or(error),
    })
}

fn value<T: Serialize, E: Display>(read: Result<T, E>, error: &mut Option<String>) -> Value {
    let value = read.map_err(|wrong| wrong.to_string());
    let value = value.and_then(|value| serde_json::to_value(value).map_err(|wrong| wrong.to_string()));
    value.unwrap_or_else(|wrong| {
        error.get_or_insert(wrong);
        Value::Null
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_visits::{Settings, Visit};

    use super::*;

    #[test]
    fn questions_are_read_and_wrong_ones_are_not_guessed() {
        let query = asked("span=day&metric=lcp&host=a.test").expect("a question");
        assert_eq!(
            (query.span, query.metric, query.host.as_deref()),
            (Span::Day, Metric::LargestPaint, Some("a.test"))
        );
        assert_eq!(asked("").map(|query| query.host), Some(None));
        assert!(asked("span=year").is_none() && asked("metric=speed").is_none());
    }

    #[test]
    fn visits_that_were_recorded_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        for number in 0..40 {
            let mut visit = Visit::new("site.test".into(), "/".into());
            assert!(visit.measures.set(Metric::FirstByte, 100.0 + f64::from(number)));
            visits.record(visit);
        }
        assert!(visits.flush(Duration::from_secs(60)));
        let reader = visits.reader().expect("a reader");
        let shown = all(&visits, &reader, &asked("span=hour&metric=ttfb").expect("a question"));
        assert_eq!((&shown["error"], &shown["cuts"]["visits"]), (&Value::Null, &json!(40)), "{shown}");
        assert_eq!(shown["hosts"], json!(["site.test"]));
        let medians = shown["series"][1]["points"].as_array().expect("points").iter();
        assert!(
            medians.filter_map(|point| point["p50"].as_f64()).all(|p50| (90.0..150.0).contains(&p50)),
            "{shown}"
        );
    }
}
