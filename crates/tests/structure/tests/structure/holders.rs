//! The types that hold bytes of clients or upstreams: each belongs to a component in the table of `docs/security.md`, which
//! states its limit, the share of one client and a test.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::{is_tested, rows, tests};
use crate::tree::{crate_named, product, read, root, sources};

/// Crates of the request path.
const CRATES: &[&str] = &[
    "access",
    "answer",
    "beacon",
    "coding",
    "http",
    "http-connection",
    "http-server",
    "jwt",
    "limits",
    "rewrite",
    "transform",
    "upstream",
    "upstream-group",
];

/// Types of fields that grow with received bytes.
const GROWING: &[&str] =
    &["Vec<u8>", "BytesMut", "Bytes", "HeaderMap", "String", "VecDeque<", "HashMap<", "HashSet<"];

/// The types by component. A type with such a field that is not listed here fails the test.
const HOLDERS: &[(&str, &[&str])] = &[
    (
        "heads of requests",
        &[
            "http::RequestHead",
            "http::SharedHead",
            "http::Variables",
            "answer::Target",
            "upstream-group::Script",
            "http-server::Receiving",
            "http-server::State",
            "http-server::Control",
            "http-server::Plain",
            "http::NormalizedPath",
            "http::Segments",
            "transform::ConsolidatedRequest",
            "transform::DocumentNames",
            "transform::DictionarySource",
            "answer::Exchange",
            "answer::Examined",
            "answer::FormedTexts",
            "answer::PageKey",
            "answer::PageView",
            "transform::ResponseCompression",
        ],
    ),
    ("bodies of requests in transit", &["http-connection::State", "http::Output", "upstream::Upload"]),
    ("bodies of requests for a retry", &["upstream::Stream"]),
    ("buffered requests", &["http-connection::Gathered", "http-connection::Spilled"]),
    ("copies of requests for a mirror", &["http-connection::CopiedBody"]),
    ("abandoned and ended streams", &["http-server::H2", "http-server::H3", "upstream::Resets"]),
    ("heads of responses", &["http::Head", "http::ResponseHead", "http-server::Outbound", "upstream::Head"]),
    (
        "responses that the client has not read",
        &[
            "limits::PacedBody",
            "http-connection::Chunk",
            "http-server::Answer",
            "http-server::ReadyStreams",
            "http-server::Stream",
            "http-server::Sending",
            "answer::OpenFile",
        ],
    ),
    (
        "input from upstreams",
        &["upstream::Messages", "upstream::Application", "upstream::Wire", "http::Records"],
    ),
    ("output to upstreams", &["upstream::Sending"]),
    (
        "interim responses",
        &["http-connection::InterimResponse", "http-server::Interims", "upstream::Interims"],
    ),
    (
        "switched protocols",
        &["upstream::Tunnel", "upstream::Upgraded", "upstream::PendingUpgrade", "upstream::Direction"],
    ),
    ("encoders", &["transform::CompressedBody", "transform::PaddedBody"]),
    ("decoders", &["transform::RewrittenBody"]),
    (
        "documents being changed",
        &[
            "answer::InsertedBody",
            "transform::ReplacedBody",
            "transform::Replacing",
            "rewrite::Css",
            "rewrite::Markup",
            "rewrite::Insertion",
            "rewrite::Manifest",
            "rewrite::RawText",
            "rewrite::Source",
        ],
    ),
    ("bodies that wait for processor time", &["http-connection::Queue"]),
    ("copies and dictionaries being gathered", &["http-connection::Gathering"]),
    ("stored copies", &["transform::Kept", "transform::Key", "transform::Copy"]),
    ("stored dictionaries", &["transform::Store", "coding::Dictionary"]),
    ("learned hints", &["answer::EarlyHints", "answer::LearnedHints", "answer::Page"]),
    ("requests that wait for an upstream", &["upstream-group::State", "upstream::Server", "upstream::Pool"]),
    ("requests in a pipeline", &["upstream::Followers", "upstream::Frames"]),
    (
        "verifications of passwords",
        &["access::Credentials", "access::Lane", "access::Passwords", "access::State"],
    ),
    ("keys with requests in progress", &["limits::ConcurrencyTable"]),
    ("tokens", &["jwt::Remembered", "jwt::State"]),
    ("clients that cancel requests", &["upstream::Cancels"]),
];

/// Parts of the paths of files without such types: tests, and the configuration.
const NO_HOLDERS: &[&str] =
    &["fuzz", "test", "settings.rs", "keys.rs", "resolve", "features.rs", "features/context.rs"];

/// Types made of the configuration, or of a constant size.
const CONFIGURED: &[&str] = &[
    "access::CertificateRules",
    "access::NetworkRules",
    "access::Table",
    "answer::Conditions",
    "answer::ErrorPage",
    "answer::Explanation",
    "answer::FixedResponse",
    "answer::FormedResponse",
    "answer::Folder",
    "answer::ForwardAuth",
    "answer::HostHeaders",
    "answer::MediaTypes",
    "answer::MirrorSettings",
    "answer::Preconnect",
    "answer::RouteAction",
    "answer::ServiceError",
    "answer::SiteVisits",
    "answer::StaticFiles",
    "answer::Sticky",
    "answer::UpstreamAction",
    "answer::UpstreamPath",
    "http::ServerUrlError",
    "http-server::Written",
    "jwt::ClaimHeader",
    "jwt::Key",
    "jwt::KeySet",
    "jwt::KeySources",
    "jwt::Remote",
    "jwt::TokenRules",
    "limits::LimitSettings",
    "limits::Limits",
    "rewrite::Origin",
    "upstream-group::ActiveChecks",
    "upstream-group::Dialer",
    "upstream-group::UpstreamTlsSettings",
];

/// The types of a source text that have a growing field.
fn holders_in(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut current = None;
    for line in product(text) {
        let words: Vec<_> = line.split_whitespace().filter(|word| !word.starts_with("pub")).collect();
        if let (["struct" | "enum", name, ..], false) = (&words[..], line.starts_with(' ')) {
            let name = name.split(['<', '(', '{', ';']).next().map(str::to_owned);
            current = name.filter(|_| !line.ends_with(';'));
        } else if line.starts_with('}') {
            current = None;
        } else if let (Some(name), Some((_, kind))) = (&current, line.split_once(": "))
            && !line.trim_start().starts_with("//")
            && GROWING.iter().any(|growing| names(kind, growing))
        {
            found.insert(name.clone());
        }
    }
    found
}

/// Whether the type of a field names `growing` as a whole word.
fn names(kind: &str, growing: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    kind.match_indices(growing).any(|(at, _)| {
        let (before, after) = (&kind.as_bytes()[..at], &kind.as_bytes()[at + growing.len()..]);
        !is_part(before.last()) && (growing.ends_with('<') || !is_part(after.first()))
    })
}

#[test]
fn every_type_that_holds_bytes_belongs_to_a_component_with_a_limit() {
    let known: BTreeMap<_, _> = HOLDERS
        .iter()
        .flat_map(|(component, types)| types.iter().map(move |name| (*name, *component)))
        .collect();
    let mut found = BTreeSet::new();
    for name in CRATES {
        for file in sources(&crate_named(name).join("src")) {
            let path = file.display().to_string();
            if !NO_HOLDERS.iter().any(|part| path.contains(part)) {
                found.extend(holders_in(&read(&file)).into_iter().map(|holder| format!("{name}::{holder}")));
            }
        }
    }
    let listed =
        |holder: &String| known.contains_key(holder.as_str()) || CONFIGURED.contains(&holder.as_str());
    let missing: Vec<_> = found.iter().filter(|holder| !listed(holder)).collect();
    assert!(missing.is_empty(), "types without a component in HOLDERS: {missing:#?}");
}

#[test]
fn every_component_has_a_limit_and_a_test() {
    let text = read(&root().join("docs/security.md"));
    let rows = rows(&text, "## Memory of clients", "### Components");
    let tests = tests();
    for (component, _) in HOLDERS {
        let row = rows.iter().find(|row| row[0] == *component);
        let row = row.unwrap_or_else(|| panic!("no row for {component:?} in the table of components"));
        assert!(!row[1].is_empty() && !row[2].is_empty(), "{component}: no limit, or no share");
        assert!(is_tested(row[3], &tests), "{component}: no test that exists: {:?}", row[3]);
    }
    assert_eq!(rows.len(), HOLDERS.len(), "a row for each component");
}

#[test]
fn fields_that_grow_are_found() {
    let text = "pub(crate) struct A<'a> {\n    bytes: Vec<u8>,\n}\nstruct F;\nfn f(\n    x: String,\n) {}\nstruct B {\n    left: usize,\n    // x: String\n}\n\
                enum C {\n    D { text: Option<String> },\n}\nstruct E {\n    strings: HeaderMapping,\n}\n";
    assert_eq!(holders_in(text), BTreeSet::from(["A".to_owned(), "C".to_owned()]));
}
