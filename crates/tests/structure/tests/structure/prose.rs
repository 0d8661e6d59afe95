//! Prose of each crate: code spans in doc comments, and plain comments, which give reasons.
//!
//! `prose.tsv` has the least of both for each crate. A crate may not fall below it, and a crate that rises above it by [`STEP`]
//! raises it: the figures only improve.

use std::path::Path;

use crate::tree::{crates, is_in, name, product, read, root, sources};
use crate::words::doc_comments;

const LEAST: &str = "crates/tests/structure/tests/structure/prose.tsv";

/// Difference to `prose.tsv` that a crate may have.
const STEP: u64 = 2;

#[derive(Debug, Default, PartialEq, Eq)]
struct Prose {
    /// Code spans and links per 1,000 words of doc comments.
    spans: u64,
    /// Lines of plain comments per 1,000 lines of code and plain comments.
    plain: u64,
}

impl Prose {
    fn of(files: &[String]) -> Self {
        let comments: Vec<_> = files.iter().map(|text| doc_comments(text)).collect();
        let words = comments.iter().map(|text| text.split_whitespace().count()).sum();
        let spans = comments.iter().map(|text| text.matches('`').count() / 2).sum();
        let lines = files.iter().flat_map(|text| product(text)).map(str::trim_start);
        let code = lines.filter(|line| !line.is_empty() && !is_doc(line));
        let (all, plain) =
            code.fold((0, 0), |(all, plain), line| (all + 1, plain + usize::from(line.starts_with("//"))));
        Self { spans: per_thousand(spans, words), plain: per_thousand(plain, all) }
    }

    fn of_crate(path: &Path) -> Self {
        let sources = sources(&path.join("src")).into_iter().filter(|file| !is_in(file, &["tests"]));
        Self::of(&sources.map(|file| read(&file)).collect::<Vec<_>>())
    }
}

fn is_doc(line: &str) -> bool {
    line.starts_with("///") || line.starts_with("//!")
}

fn per_thousand(part: usize, whole: usize) -> u64 {
    (1000 * part / whole.max(1)) as u64
}

/// The least of each crate that has documentation.
fn least() -> Vec<(String, Prose)> {
    let text = read(&root().join(LEAST));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let [name, spans, plain] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        Some((name.to_owned(), Prose { spans: spans.parse().ok()?, plain: plain.parse().ok()? }))
    };
    lines.map(|line| row(line).unwrap_or_else(|| panic!("{LEAST}: {line:?} has not three columns"))).collect()
}

#[test]
fn the_prose_of_crates_only_improves() {
    let least = least();
    let mut wrong = Vec::new();
    for path in crates() {
        let (name, now) = (name(&path), Prose::of_crate(&path));
        if now == Prose::default() {
            continue;
        }
        let Some((_, least)) = least.iter().find(|(own, _)| own == name) else {
            wrong.push(format!("{name}\t{}\t{}: no line", now.spans, now.plain));
            continue;
        };
        if now.spans < least.spans || now.plain < least.plain {
            wrong
                .push(format!("{name}: {now:?} is below {least:?}: name items in `spans`, and give reasons"));
        }
        if now.spans >= least.spans + STEP || now.plain >= least.plain + STEP {
            wrong.push(format!("{name}\t{}\t{}: an improvement, write this line", now.spans, now.plain));
        }
    }
    assert!(wrong.is_empty(), "{LEAST}:\n{}", wrong.join("\n"));
}

#[test]
fn spans_and_plain_comments_are_counted_outside_of_tests() {
    let text = "//! Reads [`A`] of `b` here.\n\n// The reason.\nfn a() {}\nfn b() {} // after\n#[cfg(test)]\nmod tests {\n// no\n}\n";
    assert_eq!(Prose::of(&[text.to_owned()]), Prose { spans: 400, plain: 333 });
}
