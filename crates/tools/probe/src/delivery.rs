//! Findings about the delivery of a response: compression and caching, judged by its head.

use brisk_report::figures::count;

use crate::findings::Finding;
use crate::report::AnswerFacts;

/// Length of a text in bytes from which on compression is worth its cost: shorter texts fit into one segment.
const LEAST: u64 = 1400;

/// Age in seconds below which browsers soon request a style sheet, script, font or picture again: a day.
const SHORT: u64 = 86_400;

/// Types of text besides `text/*`.
const TEXTS: [&str; 6] = ["javascript", "json", "xml", "svg", "wasm", "manifest"];

/// Types of resources that a page loads and that rarely change.
const RESOURCES: [&str; 5] = ["text/css", "javascript", "font/", "image/", "wasm"];

/// Findings about a successful response.
pub(crate) fn findings(answer: &AnswerFacts) -> Vec<Finding> {
    if answer.status != 200 {
        return Vec::new();
    }
    let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
    uncompressed(answer, &kind).into_iter().chain(uncached(answer, &kind)).collect()
}

/// Whether a response with this `Content-Type` is text.
pub(crate) fn is_text(kind: &str) -> bool {
    kind.starts_with("text/") && !kind.starts_with("text/event-stream")
        || TEXTS.iter().any(|part| kind.contains(part))
}

/// Whether a response with this `Content-Type` is a resource of pages.
pub(crate) fn is_resource(kind: &str) -> bool {
    RESOURCES.iter().any(|part| kind.contains(part))
}

fn uncompressed(answer: &AnswerFacts, kind: &str) -> Option<Finding> {
    let is_plain =
        answer.header("content-encoding").is_none_or(|coding| coding.eq_ignore_ascii_case("identity"));
    if !is_plain || answer.body_bytes < LEAST || !is_text(kind) {
        return None;
    }
    let bytes = answer.body_bytes;
    let text = format!(
        "the text of {} bytes is not compressed, though the request accepts gzip, br and zstd: usually a quarter remains",
        count(bytes)
    );
    Some(Finding::new("not-compressed", text).costs(0, bytes / 4 * 3).change(
        "compression = true",
        "gzip on; gzip_types text/css application/javascript application/json;",
    ))
}

fn uncached(answer: &AnswerFacts, kind: &str) -> Option<Finding> {
    let validators = ["etag", "last-modified"].iter().any(|name| answer.header(name).is_some());
    let control = answer.header("cache-control").map(str::to_ascii_lowercase);
    if is_resource(kind) {
        let age = max_age(control.as_deref(), answer.header("expires").is_some());
        return age.is_none_or(|age| age < SHORT).then(|| {
            let kept = match age {
                None => "says nothing of its age".to_owned(),
                Some(0) => "may not be used without a request".to_owned(),
                Some(age) => format!("may be used for {age} s"),
            };
            Finding::new(
                "not-cached",
                format!("the resource {kept}: browsers request it again at later visits"),
            )
            .costs(1, 0)
            .change(
                "response_headers = { set = { Cache-Control = \"public, max-age=31536000, immutable\" } }",
                "add_header Cache-Control \"public, max-age=31536000, immutable\";",
            )
            .advise("put a hash into the name of the file, so that a new version is another URL")
        });
    }
    let is_silent = control.is_none() && !validators && answer.header("expires").is_none();
    is_silent.then(|| {
        let text = "the response has neither Cache-Control nor a validator (ETag, Last-Modified): browsers cannot confirm \
                    their copy with a 304, and guess how long it may be used";
        Finding::new("no-cache-rules", text)
            .advise("send Cache-Control: no-cache with an ETag for pages, or no-store for personal data")
    })
}

/// Seconds for which a response may be used, by `Cache-Control`; `None` if it states nothing.
pub(crate) fn max_age(control: Option<&str>, expires: bool) -> Option<u64> {
    let Some(control) = control else { return expires.then_some(SHORT) };
    if control.contains("no-store") || control.contains("no-cache") {
        return Some(0);
    }
    let age = control
        .split(',')
        .find_map(|part| part.trim().strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    age.or(expires.then_some(SHORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(body_bytes: u64, headers: &[(&str, &str)]) -> Vec<&'static str> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let answer = AnswerFacts {
            protocol: "h2".to_owned(),
            status: 200,
            head_bytes: 100,
            body_bytes,
            interim: 0,
            headers,
        };
        findings(&answer).into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn texts_are_to_be_compressed_and_resources_to_be_kept() {
        let css = ("content-type", "text/css; charset=utf-8");
        assert_eq!(ids(5000, &[css]), ["not-compressed", "not-cached"]);
        let kept = ("cache-control", "public, max-age=31536000");
        assert!(ids(5000, &[css, ("content-encoding", "br"), kept]).is_empty());
        assert!(ids(500, &[css, kept]).is_empty(), "short");
        assert_eq!(
            ids(50_000, &[("content-type", "image/png"), ("cache-control", "no-cache")]),
            ["not-cached"]
        );
        assert_eq!(
            ids(50_000, &[("content-type", "image/png"), ("cache-control", "max-age=60")]),
            ["not-cached"]
        );
        assert_eq!(ids(100, &[("content-type", "text/html")]), ["no-cache-rules"]);
        for rule in [("etag", "\"x\""), ("cache-control", "no-store"), ("last-modified", "yesterday")] {
            assert!(ids(100, &[("content-type", "text/html"), rule]).is_empty(), "{rule:?}");
        }
        assert!(
            ids(5000, &[("content-type", "text/event-stream"), ("cache-control", "no-cache")]).is_empty()
        );
    }
}
