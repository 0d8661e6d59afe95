//! Paths in documents: every file or folder that a code span names exists.

use std::path::PathBuf;

use crate::tree::{documents, read, root};

/// First folders of the paths that are checked.
const TOP: &[&str] = &["bench/", "clients/", "crates/", "docs/", "fuzz/", "packaging/", "tools/"];

/// The paths that the code spans of `text` name, with the alternatives of braces written out. Spans with a placeholder, such as
/// `NAME`, or with a wildcard are no paths.
fn paths(text: &str) -> Vec<String> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths = spans.filter(|span| TOP.iter().any(|top| span.starts_with(top)));
    let paths = paths.filter(|path| !path.contains([' ', '*', '<']) && !path.contains("NAME"));
    paths.flat_map(alternatives).collect()
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let inside = path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (names, after))) = inside else { return vec![path.to_owned()] };
    names.split(',').flat_map(|name| alternatives(&format!("{before}{name}{after}"))).collect()
}

#[test]
fn every_path_in_a_document_exists() {
    let documents = documents();
    assert!(documents.len() > 25, "only {} documents found", documents.len());
    let named = documents
        .iter()
        .flat_map(|document: &PathBuf| paths(&read(document)).into_iter().map(move |path| (document, path)));
    let dead: Vec<_> = named.filter(|(_, path)| !root().join(path).exists()).collect();
    assert!(dead.is_empty(), "paths that do not exist: {dead:#?}");
}

#[test]
fn paths_are_found_in_code_spans() {
    let text =
        "See `crates/a/{b,c/d}.rs`, `tools/x`, tools/y, `crates/NAME/z`, `bench/*` and `make tools/w`.";
    assert_eq!(paths(text), ["crates/a/b.rs", "crates/a/c/d.rs", "tools/x"]);
}
