//! Features of requests for files, and the files.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::clients::Subject;
use super::generator::{Change, Feature, feature, http1};
use super::outcome::Outcome;
use Change::{Chunks, Headers, Method, Target, Version, Whole};

/// Tue, 02 Jan 2024 03:04:05 GMT in seconds since 1970.
const MODIFIED: u64 = 1_704_164_645;

/// Target of requests without another one.
pub(super) const TARGET: &str = "/small.txt";

/// Files, whose outcomes have no requests at an upstream.
pub(super) struct Files;

impl Subject for Files {
    fn has_arrived(&self, _: &str) -> bool {
        false
    }

    /// Simplifies values that each server forms in its own way: tags to their first letter, `W` if they are weak, and boundaries to
    /// one word. Names in `Vary` have no case.
    fn complete(&self, _: &str, outcome: &mut Outcome) {
        let mut boundary = None;
        for (name, value) in &mut outcome.headers {
            match name.as_str() {
                "etag" => value.truncate(1),
                "vary" => value.make_ascii_lowercase(),
                "content-type" => boundary = value.split_once("boundary=").map(|(_, text)| text.to_owned()),
                _ => {}
            }
            if let Some(boundary) = &boundary {
                *value = value.replace(boundary, "BOUNDARY");
            }
        }
        if let Some(boundary) = boundary {
            outcome.body = outcome.body.replace(&boundary, "BOUNDARY");
        }
    }
}

/// Creates the files.
pub(super) fn create(folder: &Path) {
    let letters: String = ('a'..='z').collect();
    let large = letters.repeat(2000);
    let files = [
        ("small.txt", letters.as_str()),
        ("empty.txt", ""),
        ("large.bin", &large),
        ("page.html", "<!doctype html><title>a</title>"),
        ("page.html.gz", "not examined"),
        ("style.css", "a { color: red }"),
        ("code.js", "alert(1)"),
        ("data.json", "{}"),
        ("picture.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ("unknown.xyz", "x"),
        ("plain", "without an extension"),
        ("a b.txt", "with a space"),
        ("grün.txt", "beyond ASCII"),
        ("folder/index.html", "<title>folder</title>"),
        ("bare/file.txt", "in a folder without an index"),
        (".hidden", "a secret"),
        ("index.html", "<title>root</title>"),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
        fs::write(&path, text).expect("a temporary file");
        let file = File::options().append(true).open(path).expect("a temporary file");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(MODIFIED)).expect("a file of ours");
    }
}

/// All features. Values may contain `{etag}`, the tag of the file at the server without quotation marks, `{tag}`, the tag as sent,
/// and `{modified}`.
pub(super) fn features() -> Vec<Feature> {
    METHODS.iter().chain(TARGETS).chain(RANGES).chain(CONDITIONS).chain(CODINGS).copied().collect()
}

/// Features that matter together.
pub(super) const PAIRS: &[[&str; 2]] = &[
    ["file_page", "coding_gzip"],
    ["file_page", "coding_gzip_upper"],
    ["file_page", "coding_x_gzip"],
    ["file_page", "coding_gzip_zero"],
    ["file_page", "coding_gzip_zeros"],
    ["file_page", "coding_gzip_quality"],
    ["file_page", "coding_any"],
    ["file_page", "coding_any_zero"],
    ["file_page", "coding_identity_zero"],
    ["file_page", "coding_lines"],
    ["file_page", "coding_malformed"],
    ["file_page", "coding_prefix"],
    ["file_page", "coding_browser"],
    ["file_empty", "range_first"],
    ["file_empty", "range_suffix"],
    ["file_empty", "range_suffix_zero"],
    ["file_empty", "none_match_tag"],
    ["file_missing", "none_match_any"],
    ["file_missing", "match_any"],
    ["file_missing", "range_beyond"],
    ["file_large", "range_two"],
    ["file_large", "range_overlapping"],
    ["file_large", "range_suffix"],
    ["method_head", "range_first"],
    ["method_head", "range_beyond"],
    ["method_head", "none_match_tag"],
    ["method_post", "range_first"],
    ["method_post", "none_match_any"],
    ["method_put", "match_other"],
    ["version_1_0", "range_first"],
    ["match_tag", "unmodified_before"],
    ["match_other", "none_match_tag"],
    ["none_match_tag", "since_before"],
    ["none_match_other", "since_same"],
    ["none_match_tag", "range_first"],
    ["none_match_other", "range_first"],
    ["since_same", "range_beyond"],
    ["unmodified_before", "range_first"],
    ["none_match_tag", "if_range_other"],
];

const METHODS: &[Feature] = &[
    feature("plain", Headers(&[])),
    feature("method_head", Method("HEAD")),
    feature("method_post", Method("POST")),
    feature("method_put", Method("PUT")),
    feature("method_delete", Method("DELETE")),
    feature("method_options", Method("OPTIONS")),
    feature("method_unknown", Method("M-SEARCH")),
    http1("version_1_0", Version("HTTP/1.0")),
    feature("content", Whole("hello")),
    feature("chunks_trailers", Chunks(&["hello"], &[("X-Sum", "5")])),
];

const TARGETS: &[Feature] = &[
    feature("file_empty", Target("/empty.txt")),
    feature("file_large", Target("/large.bin")),
    feature("file_page", Target("/page.html")),
    feature("file_style", Target("/style.css")),
    feature("file_code", Target("/code.js")),
    feature("file_json", Target("/data.json")),
    feature("file_picture", Target("/picture.svg")),
    feature("file_unknown", Target("/unknown.xyz")),
    feature("file_plain", Target("/plain")),
    feature("file_space", Target("/a%20b.txt")),
    feature("file_utf8", Target("/gr%C3%BCn.txt")),
    feature("file_letter_encoded", Target("/%73mall%2etxt")),
    feature("file_query", Target("/small.txt?x=1")),
    feature("file_missing", Target("/missing.txt")),
    feature("file_case", Target("/SMALL.TXT")),
    feature("file_slash", Target("/small.txt/")),
    feature("file_below_file", Target("/small.txt/a")),
    feature("file_slashes", Target("//small.txt")),
    feature("file_dots", Target("/folder/../small.txt")),
    feature("file_dots_above", Target("/../small.txt")),
    feature("file_dots_encoded", Target("/folder/%2e%2e/small.txt")),
    feature("file_slash_encoded", Target("/folder%2Findex.html")),
    feature("file_nul", Target("/small.txt%00")),
    feature("file_parameter", Target("/small.txt;x=1")),
    feature("file_long", Target("/{3000}")),
    feature("folder_root", Target("/")),
    feature("folder", Target("/folder/")),
    feature("folder_no_slash", Target("/folder")),
    feature("folder_no_slash_query", Target("/folder?x=1")),
    feature("folder_bare", Target("/bare/")),
    feature("file_hidden", Target("/.hidden")),
];

const RANGES: &[Feature] = &[
    feature("range_first", Headers(&[("Range", "bytes=0-0")])),
    feature("range_middle", Headers(&[("Range", "bytes=3-7")])),
    feature("range_open", Headers(&[("Range", "bytes=20-")])),
    feature("range_whole", Headers(&[("Range", "bytes=0-")])),
    feature("range_suffix", Headers(&[("Range", "bytes=-5")])),
    feature("range_suffix_zero", Headers(&[("Range", "bytes=-0")])),
    feature("range_suffix_long", Headers(&[("Range", "bytes=-99999")])),
    feature("range_end_beyond", Headers(&[("Range", "bytes=20-99999")])),
    feature("range_beyond", Headers(&[("Range", "bytes=99999-")])),
    feature("range_at_end", Headers(&[("Range", "bytes=26-")])),
    feature("range_reversed", Headers(&[("Range", "bytes=7-3")])),
    feature("range_huge", Headers(&[("Range", "bytes=0-99999999999999999999999")])),
    feature("range_huge_start", Headers(&[("Range", "bytes=99999999999999999999999-")])),
    feature("range_huge_suffix", Headers(&[("Range", "bytes=-99999999999999999999999")])),
    feature("range_two", Headers(&[("Range", "bytes=0-1,5-6")])),
    feature("range_two_spaces", Headers(&[("Range", "bytes= 0-1 , 5-6")])),
    feature("range_adjacent", Headers(&[("Range", "bytes=0-4,5-9")])),
    feature("range_overlapping", Headers(&[("Range", "bytes=0-9,5-14")])),
    feature("range_same", Headers(&[("Range", "bytes=0-4,0-4")])),
    feature("range_order", Headers(&[("Range", "bytes=5-9,0-4")])),
    feature("range_two_one_beyond", Headers(&[("Range", "bytes=0-4,99999-")])),
    feature("range_two_beyond", Headers(&[("Range", "bytes=99998-,99999-")])),
    feature("range_whole_and_part", Headers(&[("Range", "bytes=0-,0-4")])),
    feature("range_list_empty", Headers(&[("Range", "bytes=,0-4,,")])),
    feature("range_lines", Headers(&[("Range", "bytes=0-1"), ("Range", "bytes=5-6")])),
    feature("range_no_set", Headers(&[("Range", "bytes=")])),
    feature("range_no_equals", Headers(&[("Range", "bytes 0-1")])),
    feature("range_empty", Headers(&[("Range", "")])),
    feature("range_dash", Headers(&[("Range", "bytes=-")])),
    feature("range_text", Headers(&[("Range", "bytes=a-b")])),
    feature("range_plus", Headers(&[("Range", "bytes=+0-+1")])),
    feature("range_twice_dash", Headers(&[("Range", "bytes=0-1-2")])),
    feature("range_unit", Headers(&[("Range", "lines=0-1")])),
    feature("range_unit_case", Headers(&[("Range", "Bytes=0-1")])),
    feature("range_spaces", Headers(&[("Range", "bytes = 0-1")])),
];

const CONDITIONS: &[Feature] = &[
    feature("match_tag", Headers(&[("If-Match", "{tag}")])),
    feature("match_weak", Headers(&[("If-Match", "W/\"{etag}\"")])),
    feature("match_other", Headers(&[("If-Match", "\"other\"")])),
    feature("match_any", Headers(&[("If-Match", "*")])),
    feature("match_list", Headers(&[("If-Match", "\"other\", {tag}")])),
    feature("match_lines", Headers(&[("If-Match", "\"other\""), ("If-Match", "{tag}")])),
    feature("match_empty", Headers(&[("If-Match", "")])),
    feature("match_raw", Headers(&[("If-Match", "{etag}")])),
    feature("none_match_tag", Headers(&[("If-None-Match", "{tag}")])),
    feature("none_match_weak", Headers(&[("If-None-Match", "W/\"{etag}\"")])),
    feature("none_match_weak_lower", Headers(&[("If-None-Match", "w/\"{etag}\"")])),
    feature("none_match_other", Headers(&[("If-None-Match", "\"other\"")])),
    feature("none_match_any", Headers(&[("If-None-Match", "*")])),
    feature("none_match_list", Headers(&[("If-None-Match", "\"a,b\",{tag} ,\"other\"")])),
    feature("none_match_lines", Headers(&[("If-None-Match", "\"other\""), ("If-None-Match", "{tag}")])),
    feature("none_match_inside", Headers(&[("If-None-Match", "\"x,{tag},x\"")])),
    feature("none_match_empty", Headers(&[("If-None-Match", "")])),
    feature("none_match_raw", Headers(&[("If-None-Match", "{etag}")])),
    feature("none_match_any_list", Headers(&[("If-None-Match", "\"other\", *")])),
    feature("since_same", Headers(&[("If-Modified-Since", "{modified}")])),
    feature("since_before", Headers(&[("If-Modified-Since", "Mon, 01 Jan 2024 03:04:05 GMT")])),
    feature("since_after", Headers(&[("If-Modified-Since", "Wed, 03 Jan 2024 03:04:05 GMT")])),
    feature("since_future", Headers(&[("If-Modified-Since", "Sun, 03 Jan 2100 03:04:05 GMT")])),
    feature("since_old_format", Headers(&[("If-Modified-Since", "Wednesday, 03-Jan-24 03:04:05 GMT")])),
    feature("since_asctime", Headers(&[("If-Modified-Since", "Wed Jan  3 03:04:05 2024")])),
    feature("since_weekday", Headers(&[("If-Modified-Since", "Mon, 03 Jan 2024 03:04:05 GMT")])),
    feature("since_zone", Headers(&[("If-Modified-Since", "Wed, 03 Jan 2024 03:04:05 +0000")])),
    feature("since_text", Headers(&[("If-Modified-Since", "yesterday")])),
    feature("since_zero", Headers(&[("If-Modified-Since", "0")])),
    feature("since_impossible", Headers(&[("If-Modified-Since", "Wed, 31 Feb 2024 03:04:05 GMT")])),
    feature(
        "since_lines",
        Headers(&[("If-Modified-Since", "{modified}"), ("If-Modified-Since", "{modified}")]),
    ),
    feature("unmodified_same", Headers(&[("If-Unmodified-Since", "{modified}")])),
    feature("unmodified_before", Headers(&[("If-Unmodified-Since", "Mon, 01 Jan 2024 03:04:05 GMT")])),
    feature("unmodified_after", Headers(&[("If-Unmodified-Since", "Wed, 03 Jan 2024 03:04:05 GMT")])),
    feature("unmodified_text", Headers(&[("If-Unmodified-Since", "yesterday")])),
    feature("if_range_tag", Headers(&[("If-Range", "{tag}"), ("Range", "bytes=3-7")])),
    feature("if_range_weak", Headers(&[("If-Range", "W/\"{etag}\""), ("Range", "bytes=3-7")])),
    feature("if_range_other", Headers(&[("If-Range", "\"other\""), ("Range", "bytes=3-7")])),
    feature("if_range_date", Headers(&[("If-Range", "{modified}"), ("Range", "bytes=3-7")])),
    feature(
        "if_range_before",
        Headers(&[("If-Range", "Mon, 01 Jan 2024 03:04:05 GMT"), ("Range", "bytes=3-7")]),
    ),
    feature(
        "if_range_after",
        Headers(&[("If-Range", "Wed, 03 Jan 2024 03:04:05 GMT"), ("Range", "bytes=3-7")]),
    ),
    feature("if_range_text", Headers(&[("If-Range", "yesterday"), ("Range", "bytes=3-7")])),
    feature("if_range_beyond", Headers(&[("If-Range", "{tag}"), ("Range", "bytes=99999-")])),
    feature("if_range_other_beyond", Headers(&[("If-Range", "\"other\""), ("Range", "bytes=99999-")])),
];

const CODINGS: &[Feature] = &[
    feature("coding_gzip", Headers(&[("Accept-Encoding", "gzip")])),
    feature("coding_gzip_upper", Headers(&[("Accept-Encoding", "GZIP")])),
    feature("coding_x_gzip", Headers(&[("Accept-Encoding", "x-gzip")])),
    feature("coding_gzip_zero", Headers(&[("Accept-Encoding", "gzip;q=0")])),
    feature("coding_gzip_zeros", Headers(&[("Accept-Encoding", "gzip ; q=0.000")])),
    feature("coding_gzip_quality", Headers(&[("Accept-Encoding", "br;q=1.0, gzip;q=0.8, *;q=0.1")])),
    feature("coding_any", Headers(&[("Accept-Encoding", "*")])),
    feature("coding_any_zero", Headers(&[("Accept-Encoding", "gzip, *;q=0")])),
    feature("coding_identity", Headers(&[("Accept-Encoding", "identity")])),
    feature("coding_identity_zero", Headers(&[("Accept-Encoding", "identity;q=0")])),
    feature("coding_empty", Headers(&[("Accept-Encoding", "")])),
    feature("coding_lines", Headers(&[("Accept-Encoding", "br"), ("Accept-Encoding", "gzip")])),
    feature("coding_malformed", Headers(&[("Accept-Encoding", "gzip;q=x")])),
    feature("coding_prefix", Headers(&[("Accept-Encoding", "gzipped")])),
    feature("coding_browser", Headers(&[("Accept-Encoding", "gzip, deflate, br, zstd")])),
];
