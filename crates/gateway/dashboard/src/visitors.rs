//! Measured wait times of visitors, from the store of visits: quantiles over time, breakdowns, estimated effects of
//! changes, and experiments. Queries run on a blocking thread, one at a time, and results are cached until the page
//! requests them again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_visits::{Dimension, Metric, Query, Reader, Span, Visits};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use crate::form;
use crate::responses::{self, Body};

/// Metrics with displayed quantiles; all have histograms.
const SHOWN: [Metric; 7] = [
    Metric::Handshake,
    Metric::FirstByte,
    Metric::LargestPaint,
    Metric::Interaction,
    Metric::Shift,
    Metric::FirstPaint,
    Metric::Wait,
];

/// Selection of a page of the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selection {
    query: Query,
    /// [`Dimension`] of lines.
    by: Dimension,
    /// Second [`Dimension`] of the table.
    and: Dimension,
    /// Moment of a comparison, in Unix seconds.
    at: Option<i64>,
}

/// Maximum number of selectable hosts.
const HOSTS: usize = 2000;

/// Maximum length of a host name, in bytes.
const LONGEST_NAME: usize = 255;

/// Time for which a result is cached. Less than the interval of 60 s at which pages request it, so that each request of
/// a page gets new data.
const CACHED_FOR: Duration = Duration::from_secs(55);

/// Maximum number of results in a [`QueryCache`].
const KEPT: usize = 16;

/// Runs one query at a time and shares its result for [`CACHED_FOR`] with all clients that request the same.
pub(crate) struct QueryCache {
    permit: Arc<Semaphore>,
    kept: RefCell<VecDeque<(Selection, Instant, Bytes)>>,
}

impl QueryCache {
    pub(crate) fn new() -> Self {
        Self { permit: Arc::new(Semaphore::new(1)), kept: RefCell::default() }
    }

    fn known(&self, query: &Selection) -> Option<Bytes> {
        let kept = self.kept.borrow();
        let known = kept.iter().find(|(of, made, _)| of == query && made.elapsed() < CACHED_FOR);
        known.map(|(_, _, answer)| answer.clone())
    }

    fn keep(&self, query: Selection, answer: Bytes) {
        let mut kept = self.kept.borrow_mut();
        kept.retain(|(of, made, _)| *of != query && made.elapsed() < CACHED_FOR);
        kept.truncate(KEPT - 1);
        kept.push_front((query, Instant::now(), answer));
    }

    /// Removes results older than [`CACHED_FOR`].
    pub(crate) fn forget(&self) {
        self.kept.borrow_mut().retain(|(_, made, _)| made.elapsed() < CACHED_FOR);
    }
}

/// Runs `work` on a blocking thread after its predecessors. The permit is held until `work` ends, even if the client
/// disconnects: otherwise clients that reconnect could start queries in parallel.
async fn run_exclusively<T: Send + 'static>(
    permit: &Arc<Semaphore>,
    known: impl FnOnce() -> Option<T>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    // An error is impossible: the semaphore is never closed.
    let permit = Arc::clone(permit).acquire_owned().await;
    // Another client may have run the same query in the meantime.
    if let Some(known) = known() {
        return Ok(known);
    }
    let run_exclusively = move || {
        let done = work();
        drop(permit);
        done
    };
    spawn_blocking(run_exclusively).await
}

/// Responds to `?span=hour|day|month&metric=ttfb&host=NAME&by=route&and=network&at=SECONDS&page=NAME`. Without a host or
/// page, all are included; without a moment, nothing is compared, nor are single pages.
pub(crate) async fn answer(visits: &Visits, queries: &QueryCache, query: &str) -> Response<Body> {
    let Some(reader) = visits.reader() else { return responses::json(&json!({ "on": false })) };
    let Some(query) = parse_query(query) else {
        return responses::text(
            StatusCode::BAD_REQUEST,
            "write span=hour, day or month, a metric such as ttfb, and dimensions such as route\n",
        );
    };
    if let Some(known) = queries.known(&query) {
        return responses::json_text(known);
    }
    let (visits, asked) = (visits.clone(), query.clone());
    let known = || queries.known(&query).map(|answer| (answer, false));
    let work = move || {
        let all = all(&visits, &reader, &asked);
        // A result with an error is not kept, so that the next request tries again.
        (Bytes::from(all.to_string()), all["error"].is_null())
    };
    let read = run_exclusively(&queries.permit, known, work).await;
    match read {
        Ok((answer, is_to_be_kept)) => {
            if is_to_be_kept {
                queries.keep(query, answer.clone());
            }
            responses::json_text(answer)
        }
        Err(_) => responses::text(StatusCode::INTERNAL_SERVER_ERROR, "cannot read the visits; see the log\n"),
    }
}

fn parse_query(query: &str) -> Option<Selection> {
    let field = |name, usual: &str| {
        form::field(query.as_bytes(), name, LONGEST_NAME).unwrap_or_else(|| usual.to_owned())
    };
    let host = Some(field("host", "")).filter(|host| !host.is_empty());
    let page = Some(field("page", "")).filter(|page| !page.is_empty());
    let at = field("at", "");
    Some(Selection {
        query: Query {
            host,
            page,
            span: Span::named(&field("span", "hour"))?,
            metric: Metric::named(&field("metric", "ttfb"))?,
        },
        by: Dimension::named(&field("by", "route"))?,
        and: Dimension::named(&field("and", "network"))?,
        at: if at.is_empty() { None } else { Some(at.parse().ok()?) },
    })
}

/// All results of a [`Selection`]. An unreadable part is `null`, and the first reason is in `error`.
fn all(visits: &Visits, reader: &Reader, selection: &Selection) -> Value {
    let Selection { query, by, and, at } = selection;
    let mut error = None;
    let status = visits.status();
    let hosts = reader.hosts().map(|mut hosts| {
        let more = hosts.len().saturating_sub(HOSTS);
        hosts.truncate(HOSTS);
        (hosts, more)
    });
    let hosts = value(hosts, &mut error);
    let analysis = value(reader.analysis(query, [*by, *and]), &mut error);
    let series = SHOWN.map(|metric| {
        if query.page.is_some() {
            let all = analysis["series"].as_array().into_iter().flatten();
            return all
                .into_iter()
                .find(|series| series["metric"] == metric.name())
                .cloned()
                .unwrap_or_default();
        }
        let query = Query { metric, ..query.clone() };
        value(reader.series(&query), &mut error)
    });
    let experiments = value(reader.experiments(), &mut error);
    let marks = value(reader.marks(query), &mut error);
    let changes = SHOWN.map(|metric| {
        let query = Query { metric, ..query.clone() };
        at.filter(|_| query.page.is_none())
            .map_or(Value::Null, |at| value(reader.change(&query, at), &mut error))
    });
    json!({
        "on": true,
        "recorded": status.recorded,
        "dropped": status.dropped,
        "bytes": status.bytes,
        "hosts": hosts[0],
        "more_hosts": hosts[1],
        "series": series,
        "cuts": analysis["cuts"],
        "worth": analysis["worth"],
        "experiments": experiments,
        "lines": analysis["lines"],
        "distributions": analysis["distributions"],
        "table": analysis["table"],
        "marks": marks,
        "changes": changes,
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
    use brisk_visits::{Settings, Visit};
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn questions_are_read_and_wrong_ones_are_not_guessed() {
        let query = parse_query("span=day&metric=lcp&host=a.test").expect("a question");
        assert_eq!(
            (query.query.span, query.query.metric, query.query.host.as_deref()),
            (Span::Day, Metric::LargestPaint, Some("a.test"))
        );
        assert_eq!(parse_query("").map(|query| (query.query.host, query.at)), Some((None, None)));
        let query = parse_query("by=page&page=a.test/x%2F*").expect("a question");
        assert_eq!((query.by, query.query.page.as_deref()), (Dimension::Page, Some("a.test/x/*")));
        let query = parse_query("by=browser&and=http&at=1795000000").expect("a question");
        assert_eq!(
            (query.by, query.and, query.at),
            (Dimension::Browser, Dimension::Http, Some(1_795_000_000))
        );
        assert!(parse_query("by=colour").is_none() && parse_query("at=now").is_none());
        assert!(parse_query("span=year").is_none() && parse_query("metric=speed").is_none());
    }

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_its_work_though_who_asked_has_left() {
        let permit = Arc::new(Semaphore::new(1));
        let ((began, begun), (go, wait)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel());
        let of_task = Arc::clone(&permit);
        let asked = tokio::spawn(async move {
            let work = move || {
                let _ = began.send(());
                wait.recv()
            };
            let _ = run_exclusively(&of_task, || None, work).await;
        });
        begun.await.expect("work that begins");
        asked.abort();
        assert!(asked.await.is_err());
        assert!(permit.try_acquire().is_err(), "the work goes on");
        go.send(()).expect("work that waits");
        let _next = permit.acquire().await.expect("a turn");
    }

    #[tokio::test]
    async fn an_answer_is_given_again_and_what_failed_is_not() {
        let queries = QueryCache::new();
        let query = parse_query("span=hour").expect("a question");
        for number in 0..2 * KEPT {
            let of_host = Query { host: Some(format!("{number}.test")), ..query.query.clone() };
            let query = Selection { query: of_host, ..query.clone() };
            queries.keep(query, Bytes::from_static(b"{}"));
        }
        assert_eq!(queries.kept.borrow().len(), KEPT);
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        queries.keep(query, Bytes::from_static(b"{\"kept\":true}"));
        let again = answer(&visits, &queries, "span=hour").await;
        assert_eq!(again.into_body().collect().await.expect("a body").to_bytes(), "{\"kept\":true}");
        let other = answer(&visits, &queries, "span=day").await;
        let other = other.into_body().collect().await.expect("a body").to_bytes();
        let is_good = serde_json::from_slice::<Value>(&other).expect("JSON")["error"].is_null();
        assert_eq!(queries.known(&parse_query("span=day").expect("a question")).is_some(), is_good);
    }

    #[test]
    fn visits_that_were_recorded_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        for number in 0..40 {
            let mut visit = Visit::new("site.test".into(), "/".into());
            assert!(visit.measures.set(Metric::FirstByte, 100.0 + f64::from(number)));
            visit.page = Some(["site.test/", "site.test/item/*"][number as usize % 2].into());
            visits.record(visit);
        }
        assert!(visits.flush(Duration::from_mins(1)));
        let reader = visits.reader().expect("a reader");
        let shown = all(&visits, &reader, &parse_query("span=hour&metric=ttfb").expect("a question"));
        assert_eq!((&shown["error"], &shown["cuts"]["visits"]), (&Value::Null, &json!(40)), "{shown}");
        assert_eq!(shown["hosts"], json!(["site.test"]));
        let medians = shown["series"][1]["points"].as_array().expect("points").iter();
        assert!(
            medians.filter_map(|point| point["p50"].as_f64()).all(|p50| (90.0..150.0).contains(&p50)),
            "{shown}"
        );
        let query = parse_query("span=hour&metric=ttfb&page=site.test/item/*").expect("a question");
        let shown = all(&visits, &reader, &query);
        assert_eq!((&shown["error"], &shown["cuts"]["visits"]), (&Value::Null, &json!(20)), "{shown}");
        let points = |place: usize| shown["series"][place]["points"].as_array().map_or(0, Vec::len);
        assert!(points(1) > 0 && points(2) == 0, "{shown}");
        let found = shown["distributions"].as_array().expect("distributions");
        let first = found.iter().find(|one| one["metric"] == "ttfb").expect("a distribution");
        assert_eq!(first["visits"], json!([20, 0, 0, 0, 0, 0, 0, 0]));
        let query = parse_query("page=site.test/none").expect("a question");
        assert_eq!(all(&visits, &reader, &query)["cuts"]["visits"], 0);
    }
}
