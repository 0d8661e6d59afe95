//! The reach of experiments on visitors: one hook per layer names them, and other code knows variants only.

use crate::tree::{FOLDERS, crates, files, folder, read};

/// Files outside of `crates/visitors` that may name experiments on visitors.
const MOST: usize = 8;

/// Folders that are not examined: the crates of the feature, tools, whose experiments are benchmarks, and tests.
const SKIPPED: &[&str] = &["visitors", "tools", "tests"];

/// Parts of a source file that name experiments on visitors, in lower case.
const NAMES: &[&str] = &["experiment", "brisk_trials"];

/// Words of identifiers and comments for the values that an experiment compares.
const WORDS: &[&str] = &["Arm", "Arms", "arms"];

/// A lint.
const OTHER: &str = "match_same_arms";

/// Whether a source file names experiments on visitors.
fn names_experiments(text: &str) -> bool {
    let text = text.replace(OTHER, "");
    let mut words = text.split(|sign: char| !sign.is_alphanumeric());
    words.any(|word| WORDS.contains(&word)) || NAMES.iter().any(|name| text.to_lowercase().contains(name))
}

#[test]
fn few_files_name_experiments_on_visitors() {
    let examined = crates().into_iter().filter(|path| !SKIPPED.contains(&FOLDERS[folder(path)]));
    let examined = examined.flat_map(|path| files(&path, &["rs", "js", "html", "css"]));
    let named: Vec<_> = examined.filter(|file| names_experiments(&read(file))).collect();
    assert!(!named.is_empty(), "the hooks are not found");
    assert!(named.len() <= MOST, "more than {MOST} files: use `brisk_variants` in {named:#?}");
}

#[test]
fn experiments_are_found_in_code_and_comments() {
    for text in [
        "use brisk_trials::Draws;",
        "/// Levels of experiments.",
        "fn take_part(all_arms: u8)",
        "struct Experiment;",
        "use brisk_visits::{Arm, Visit};",
    ] {
        assert!(names_experiments(text), "{text}");
    }
    for text in ["#[expect(clippy::match_same_arms)]", "self.arm(cx)"] {
        assert!(!names_experiments(text), "{text}");
    }
}
