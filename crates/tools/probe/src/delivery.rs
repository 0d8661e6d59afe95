//! Findings about the delivery of a response: compression and caching, judged by its head.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_report::figures::count;
use brisk_wire::cache_control::{self, Directive};

use crate::findings::Finding;
use crate::report::AnswerFacts;

/// Length of a text in bytes from which on compression is worth its cost: shorter texts fit into one segment.
const LEAST: u64 = 1400;

/// Time below which browsers soon request a style sheet, script, font or picture again.
pub(crate) const SHORT: Duration = Duration::from_hours(24);

/// Types of text besides `text/*` and types with a suffix of [`TEXT_SUFFIXES`].
const TEXTS: [&str; 12] = [
    "application/ecmascript",
    "application/javascript",
    "application/json",
    "application/json-seq",
    "application/rtf",
    "application/toml",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
];

/// Suffixes of text types (RFC 6838 section 4.2.8). A type that has `xml` elsewhere may be an archive, as those of office
/// documents are.
const TEXT_SUFFIXES: [&str; 4] = ["+json", "+json-seq", "+xml", "+yaml"];

/// Types of resources that a page loads and that rarely change, besides fonts and pictures.
const RESOURCES: [&str; 8] = [
    "application/ecmascript",
    "application/font-woff",
    "application/javascript",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "text/css",
    "text/javascript",
];

/// [`Finding`]s about a successful response.
pub(crate) fn findings(answer: &AnswerFacts) -> Vec<Finding> {
    if answer.status != 200 {
        return Vec::new();
    }
    let kind = content_type(&answer.headers);
    uncompressed(answer, &kind).into_iter().chain(uncached(answer, &kind)).collect()
}

/// The media type of the content in lower case, without parameters (RFC 9110 section 8.3.1). Empty if the head has none.
pub(crate) fn content_type(headers: &[(String, String)]) -> String {
    let value = values(headers, "content-type").next().unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether content of this [`content_type`] is text, which compression makes much shorter.
pub(crate) fn is_text(kind: &str) -> bool {
    // A compressor may hold events back until it has enough of them.
    kind.starts_with("text/") && kind != "text/event-stream"
        || TEXTS.contains(&kind)
        || TEXT_SUFFIXES.iter().any(|suffix| kind.ends_with(suffix))
}

/// Whether content of this [`content_type`] is a resource of pages.
pub(crate) fn is_resource(kind: &str) -> bool {
    kind.starts_with("font/") || kind.starts_with("image/") || RESOURCES.contains(&kind)
}

/// Whether the content has no coding (RFC 9110 section 8.4.1).
pub(crate) fn is_uncoded(headers: &[(String, String)]) -> bool {
    let codings = values(headers, "content-encoding").flat_map(|value| value.split(','));
    codings.map(str::trim).all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity"))
}

/// Time for which a browser may use a response without another request, since its creation; `None` if no field states it,
/// so that browsers guess. `received` replaces a missing `Date`.
pub(crate) fn freshness(headers: &[(String, String)], received: SystemTime) -> Option<Duration> {
    let control = || values(headers, "cache-control").map(str::as_bytes);
    // RFC 9111 section 4.2.1: of directives that conflict, the most restrictive counts. Section 4.1: no request matches `*`.
    let forbids = |directive: Directive<'_>| directive.is("no-store") || directive.is("no-cache");
    if control().flat_map(Directive::all).any(forbids)
        || values(headers, "vary").flat_map(|value| value.split(',')).any(|name| name.trim() == "*")
    {
        return Some(Duration::ZERO);
    }
    // RFC 9111 section 5.3: `max-age` overrides `Expires`. `s-maxage` is for shared caches (section 5.2.2.10).
    cache_control::max_age(control()).or_else(|| {
        let expires = values(headers, "expires").next()?;
        // RFC 9111 section 5.3: an invalid date, such as 0, is in the past.
        let expires = httpdate::parse_http_date(expires).unwrap_or(UNIX_EPOCH);
        let date = values(headers, "date").next().and_then(|date| httpdate::parse_http_date(date).ok());
        Some(expires.duration_since(date.unwrap_or(received)).unwrap_or_default())
    })
}

/// Values of the fields with this name in lower case.
fn values<'h>(headers: &'h [(String, String)], name: &str) -> impl Iterator<Item = &'h str> {
    headers.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
}

fn uncompressed(answer: &AnswerFacts, kind: &str) -> Option<Finding> {
    if !is_uncoded(&answer.headers) || answer.body_bytes < LEAST || !is_text(kind) {
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
    if is_resource(kind) {
        let age = freshness(&answer.headers, SystemTime::now());
        return age.is_none_or(|age| age < SHORT).then(|| {
            let kept = match age {
                None => "says nothing of its age".to_owned(),
                Some(Duration::ZERO) => "may not be used without a request".to_owned(),
                Some(age) => format!("may be used for {} s", age.as_secs()),
            };
            Finding::new(
                "not-cached",
                format!("the resource {kept}: browsers request it again at later visits"),
            )
            // Even a 304 costs a round trip.
            .costs(1, 0)
            .change(
                "response_headers = { set = { Cache-Control = \"public, max-age=31536000, immutable\" } }",
                "add_header Cache-Control \"public, max-age=31536000, immutable\";",
            )
            .advise("put a hash into the name of the file, so that a new version is another URL")
        });
    }
    let rules = ["cache-control", "expires"].iter().any(|name| answer.header(name).is_some());
    let is_silent = !rules && !validators;
    is_silent.then(|| {
        let text = "the response has neither Cache-Control nor a validator (ETag, Last-Modified): browsers cannot confirm \
                    their copy with a 304, and guess how long it may be used";
        Finding::new("no-cache-rules", text)
            .advise("send Cache-Control: no-cache with an ETag for pages, or no-store for personal data")
    })
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

    #[test]
    fn archives_are_not_text_though_their_type_names_xml() {
        let office = "application/vnd.openxmlformats-officedocument";
        for archive in [
            &format!("{office}.wordprocessingml.document"),
            &format!("{office}.spreadsheetml.sheet"),
            &format!("{office}.presentationml.presentation"),
            "application/vnd.oasis.opendocument.text",
            "application/epub+zip",
            "application/vnd.oma.drm+xml+zip",
            "application/x-jsonzip",
            "application/vnd.android.package-archive",
            "image/png",
            "text/event-stream",
        ] {
            assert!(!is_text(archive), "{archive}");
            assert!(!ids(5000, &[("content-type", archive)]).contains(&"not-compressed"), "{archive}");
        }
        for text in [
            "application/atom+xml",
            "application/JSON; charset=utf-8",
            "image/svg+xml",
            "text/javascript",
            "application/manifest+json",
            &format!("{office}.wordprocessingml.document.main+xml"),
        ] {
            assert!(ids(5000, &[("content-type", text)]).contains(&"not-compressed"), "{text}");
        }
    }

    fn seconds(headers: &[(&str, &str)]) -> Option<u64> {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // Sat, 01 Jan 2000 00:00:00 GMT
        let received = UNIX_EPOCH + Duration::from_hours(262_968);
        freshness(&headers, received).map(|age| age.as_secs())
    }

    #[test]
    fn directives_precede_expires_and_the_most_restrictive_counts() {
        let expires = ("expires", "Sun, 02 Jan 2000 00:00:00 GMT");
        for (control, expected) in [
            ("max-age=60", Some(60)),
            ("max-age=0", Some(0)),
            ("max-age=60, no-cache", Some(0)),
            ("No-Store", Some(0)),
            ("private, MAX-AGE=60", Some(60)),
            ("s-maxage=5", Some(86_400)),
            ("s-maxage=5, max-age=60", Some(60)),
            ("public, immutable", Some(86_400)),
            ("no-cache=\"set-cookie\", max-age=60", Some(60)),
            ("max-age=soon", Some(0)),
        ] {
            assert_eq!(seconds(&[("cache-control", control), expires]), expected, "{control}");
        }
        assert_eq!(seconds(&[("cache-control", "public"), ("cache-control", "max-age=5")]), Some(5));
        assert_eq!(seconds(&[("cache-control", "max-age=5"), ("cache-control", "no-store")]), Some(0));
        assert_eq!(seconds(&[("cache-control", "max-age=5"), ("vary", "accept, *")]), Some(0));
        assert_eq!(seconds(&[("cache-control", "s-maxage=5")]), None);
        assert_eq!(seconds(&[]), None);
    }

    #[test]
    fn expires_counts_from_the_date_of_the_response() {
        let expires = ("expires", "Sun, 02 Jan 2000 00:00:00 GMT");
        assert_eq!(seconds(&[expires]), Some(86_400), "from its arrival");
        assert_eq!(seconds(&[expires, ("date", "Sat, 01 Jan 2000 12:00:00 GMT")]), Some(43_200));
        assert_eq!(seconds(&[expires, ("date", "Mon, 03 Jan 2000 00:00:00 GMT")]), Some(0));
        for past in ["Thu, 01 Jan 1970 00:00:00 GMT", "0", "-1", "", "soon"] {
            assert_eq!(seconds(&[("expires", past)]), Some(0), "{past}");
            assert_eq!(ids(50_000, &[("content-type", "image/png"), ("expires", past)]), ["not-cached"]);
        }
        assert_eq!(seconds(&[("expires", "Sunday, 02-Jan-00 00:00:00 GMT")]), Some(86_400));
    }
}
