//! The program under test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Path of `brisk`, as built by Cargo beside this test.
///
/// Fails the test if the program is missing or older than one of its sources: `cargo test` builds the program of another
/// package only as part of the workspace.
pub fn brisk_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("brisk"))
}

/// Path of the program `name` of this workspace.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the path of this test");
    // Tests are in the folder `deps`, programs in its parent.
    let program = test.parent().expect("deps").with_file_name(name);
    let remedy = "cargo build --workspace --bins --features brisk-cli/tools";
    assert!(program.exists(), "{} is missing: {remedy}", program.display());
    if let Some(source) = newer_source(&program) {
        panic!("{} is older than {}: {remedy}", program.display(), source.display());
    }
    program
}

/// Source file that changed after `program` was built, found in Cargo's list of its sources (`.d` file).
fn newer_source(program: &Path) -> Option<PathBuf> {
    let built = fs::metadata(program).and_then(|metadata| metadata.modified()).ok()?;
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    // The list escapes a space within a path by a backslash.
    let (_, sources) = list.trim_end().split_once(": ")?;
    let sources = sources.replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|source| PathBuf::from(source.replace('\0', " ")));
    sources.find(|source| {
        let changed = fs::metadata(source).and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| changed > built)
    })
}
