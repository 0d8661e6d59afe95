//! The words of documentation and code: the field's standard terms, in short declarative sentences.
//!
//! [`FORBIDDEN`] lists words that say less than the term that the field has.

use std::fs;
use std::path::{Path, PathBuf};

/// Forbidden words, and what to write instead. Compared without case, as whole words, in code and comments alike.
const FORBIDDEN: &[(&str, &str)] = &[
    ("tell", "log, report or return"),
    ("tells", "logs, reports or returns"),
    ("told", "logged, reported or returned"),
    ("patience", "timeout"),
    ("so many", "the number, by its name"),
    ("so long", "the duration, by its name"),
    ("whoever", "the actor: client, caller, operator, attacker"),
    ("nobody", "no, and the actor: no caller, no client"),
    ("somebody", "the actor: client, caller, operator, attacker"),
    ("anybody", "any, and the actor: any caller, any client"),
    ("what came of", "the result of"),
    ("what became of", "the outcome of"),
    ("came to", "resulted in"),
    ("in vain", "without success"),
    ("for ever", "until the end, or never returns"),
    ("card", "GPU or device"),
    ("departure", "connect options"),
];

/// Documents that keep to them, beside all sources.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "docs/access-log.md",
    "docs/audit.md",
    "docs/bench.md",
    "docs/certificates.md",
    "docs/configuration.md",
    "docs/dashboard.md",
    "docs/fuzzing.md",
    "docs/keyless-protocol.md",
    "docs/keyless.md",
    "docs/keys.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/pages.md",
    "docs/probe.md",
    "docs/security.md",
    "docs/sessions.md",
    "docs/speed.md",
    "docs/visitors.md",
    "docs/wolfssl.md",
];

/// The highest number of "what" and "whatever" per 1,000 words of a document. They stand for a name that the reader has to
/// guess; rustls' documentation has 0.7.
const MOST_WHAT: usize = 2;

/// Documents above [`MOST_WHAT`].
const ABOVE_MOST_WHAT: &[&str] = &["ARCHITECTURE.md", "README.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn files() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("the folder of all crates");
    let folders = crates.map(|entry| entry.expect("an entry").path().join("src"));
    let sources = folders.filter(|folder| folder.is_dir()).flat_map(|folder| sources(&folder));
    sources.chain(DOCUMENTS.iter().map(|file| root().join(file))).collect()
}

/// The words of a line in lower case, with one space before, between and after them.
fn words(line: &str) -> String {
    let lower = line.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + word + " ")
}

/// A document without its code spans: they quote names, of tests for example, that other files define.
fn without_code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join("_"));
    lines.collect::<Vec<_>>().join("\n")
}

fn findings(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(index, line)| {
            let words = words(line);
            let found = FORBIDDEN.iter().filter(move |(word, _)| words.contains(&format!(" {word} ")));
            found.map(move |(word, instead)| format!("{name}:{}: {word:?}: write {instead}", index + 1))
        })
        .collect()
}

#[test]
fn sources_and_documents_keep_to_the_words_of_the_field() {
    let files = files();
    assert!(files.len() > 100, "only {} files found", files.len());
    let all = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).expect("a source file");
        let is_document = file.extension().is_some_and(|extension| extension == "md");
        findings(&file.display().to_string(), &if is_document { without_code(&text) } else { text })
    });
    let all: Vec<_> = all.collect();
    assert!(all.is_empty(), "{} forbidden words: {all:#?}", all.len());
}

#[test]
fn documents_name_their_subjects() {
    for name in DOCUMENTS.iter().filter(|name| !ABOVE_MOST_WHAT.contains(name)) {
        let text = fs::read_to_string(root().join(name)).expect("a document");
        let words = words(&without_code(&text));
        let found = words.split(' ').filter(|word| matches!(*word, "what" | "whatever")).count();
        let all = words.split(' ').count();
        assert!(
            found * 1000 <= all * MOST_WHAT,
            "{name}: {found} times \"what\" in {all} words: name the subject"
        );
    }
}

#[test]
fn words_are_found_whole_and_in_any_case() {
    let found = |line: &str| findings("a.rs", line).len();
    assert_eq!(found("/// Told by the clock, as SO MANY are: `tell_all`."), 3);
    assert_eq!(found("/// The discarded teller's cardinality; so many-sided."), 1);
    assert_eq!(found("/// Reports the result to the caller."), 0);
    assert_eq!(without_code("what `nobody::told` is\nnow"), "what _ is\nnow");
}
