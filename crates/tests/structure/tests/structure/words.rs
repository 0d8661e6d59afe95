//! The words of documentation and code: the field's standard terms, in short declarative sentences.
//!
//! [`FORBIDDEN`] lists words that are less exact than the term of the field. The word "what" is counted: in place of a noun it
//! hides the subject of a sentence, and its frequency distinguishes documentation that outsiders understand from documentation
//! that they do not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::tree::{crates, documents, is_in, name, product, read, sources};

/// Forbidden words, and their replacements. Compared without case, as whole words, in code and comments alike.
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

/// The word "what" per 1,000 words of the doc comments of a crate, or of a document, at most.
const MOST_WHAT: f64 = 2.0;

fn files() -> Vec<PathBuf> {
    let sources = crates().into_iter().flat_map(|path| sources(&path.join("src")));
    sources.chain(documents()).collect()
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
        let text = read(file);
        let is_document = file.extension().is_some_and(|extension| extension == "md");
        findings(&file.display().to_string(), &if is_document { without_code(&text) } else { text })
    });
    let all: Vec<_> = all.collect();
    assert!(all.is_empty(), "{} forbidden words: {all:#?}", all.len());
}

#[test]
fn words_are_found_whole_and_in_any_case() {
    let found = |line: &str| findings("a.rs", line).len();
    assert_eq!(found("/// Told by the clock, as SO MANY are: `tell_all`."), 3);
    assert_eq!(found("/// The discarded teller's cardinality; so many-sided."), 1);
    assert_eq!(found("/// Reports the result to the caller."), 0);
    assert_eq!(without_code("what `nobody::told` is\nnow"), "what _ is\nnow");
}

/// The text of the doc comments of a file, without its tests.
pub(crate) fn doc_comments(text: &str) -> String {
    let lines = product(text).into_iter().map(str::trim_start);
    let lines = lines.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    lines.collect::<Vec<_>>().join("\n")
}

/// A document without code, in blocks and in spans.
fn prose(text: &str) -> String {
    without_code(&text.split("```").step_by(2).collect::<Vec<_>>().join("\n"))
}

/// The doc comments of each crate and the prose of each document, by name.
fn texts() -> BTreeMap<String, String> {
    let crates = crates().into_iter().map(|path| {
        let sources = sources(&path.join("src")).into_iter().filter(|file| !is_in(file, &["tests"]));
        (name(&path).to_owned(), sources.map(|file| doc_comments(&read(&file)) + "\n").collect())
    });
    let documents = documents().into_iter();
    crates.chain(documents.map(|path| (name(&path).to_owned(), prose(&read(&path))))).collect()
}

/// The word "what" per 1,000 words.
fn what_per_thousand(text: &str) -> f64 {
    let words: Vec<_> = text
        .split(|letter: char| !letter.is_ascii_alphabetic() && letter != '\'')
        .filter(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()))
        .collect();
    let what = words.iter().filter(|word| {
        let word = word.to_ascii_lowercase();
        word == "what" || word == "whatever" || word.starts_with("what'")
    });
    1000.0 * what.count() as f64 / words.len().max(1) as f64
}

#[test]
fn documentation_names_its_subjects() {
    let texts = texts();
    assert!(texts.len() > 40, "only {} crates and documents found", texts.len());
    let rates = texts.iter().map(|(name, text)| (name, what_per_thousand(text)));
    let wrong: Vec<_> = rates.filter(|(_, rate)| *rate > MOST_WHAT).collect();
    assert!(wrong.is_empty(), "\"what\" per 1,000 words, name the subject of these sentences: {wrong:#?}");
}

#[test]
fn what_is_counted_in_doc_comments_outside_of_tests() {
    let text = "//! What runs.\n/// Does what `what` does.\nfn what() {} // what\n#[cfg(test)]\nmod tests {} /// what\n";
    assert_eq!(doc_comments(text), " What runs.\n Does what `what` does.");
    assert!((what_per_thousand("What is it? Whatever: what's it, somewhat.") - 3000.0 / 7.0).abs() < 1e-9);
    assert_eq!(prose("one\n```sh\nwhat\n```\ntwo `what` three"), "one\n\n\ntwo _ three");
}
