//! Marks of deployments and reloads: lines of a file beside the database, so that a command can add one while the gateway
//! runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

/// Name of the file in the folder of the database.
const FILE: &str = "marks";

/// Bytes at the end of the file that are read; earlier marks are ignored.
const READ: u64 = 64 << 10;

/// Longest [`MarkName`], in characters.
const LONGEST: usize = 60;

/// Kind of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkKind {
    /// A deployment, named by `brisk mark`.
    Deployment,
    /// A reload of the configuration.
    Reload,
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Time in Unix seconds.
    pub at: i64,
    /// Kind.
    pub kind: MarkKind,
    /// Name; empty for reloads.
    pub name: String,
}

/// A name of a deployment: 1 to 60 characters of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkName(String);

/// The text is not a [`MarkName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a name of 1 to 60 characters, e.g. v1.4.2, without control characters")]
pub struct MarkNameError;

impl FromStr for MarkName {
    type Err = MarkNameError;

    fn from_str(text: &str) -> Result<Self, MarkNameError> {
        let text = text.trim();
        let is_right =
            !text.is_empty() && text.chars().count() <= LONGEST && !text.chars().any(char::is_control);
        if is_right { Ok(Self(text.to_owned())) } else { Err(MarkNameError) }
    }
}

impl MarkName {
    /// Adds a mark of a deployment at `at`, in Unix seconds, to the store in `folder`.
    ///
    /// # Errors
    ///
    /// Fails if the file `marks` cannot be written.
    pub fn add_to(&self, folder: &Path, at: i64) -> io::Result<()> {
        add(folder, &format!("{at} deployment {}\n", self.0))
    }
}

/// Adds a [`MarkKind::Reload`] at `at`, in Unix seconds.
pub(crate) fn add_reload(folder: &Path, at: i64) -> io::Result<()> {
    add(folder, &format!("{at} reload\n"))
}

/// Appends with one call, so that marks of two processes do not mix.
fn add(folder: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o640).open(folder.join(FILE))?;
    file.write_all(line.as_bytes())
}

/// Marks from `start` on, in order of time; empty without a file. Lines that brisk cannot have written are skipped.
pub(crate) fn read(folder: &Path, start: i64) -> io::Result<Vec<Mark>> {
    let mut file = match File::open(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ)))?;
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes)?;
    // If the first line is cut, its time lacks leading digits and is before every span.
    let text = String::from_utf8_lossy(&bytes);
    let mut marks: Vec<_> = text.lines().filter_map(mark).filter(|mark| mark.at >= start).collect();
    // Two processes may append out of order.
    marks.sort_by_key(|mark| mark.at);
    Ok(marks)
}

fn mark(line: &str) -> Option<Mark> {
    let (at, rest) = line.split_once(' ')?;
    let at = at.parse().ok()?;
    match rest.split_once(' ') {
        None if rest == "reload" => Some(Mark { at, kind: MarkKind::Reload, name: String::new() }),
        Some(("deployment", name)) => {
            let MarkName(name) = name.parse().ok()?;
            Some(Mark { at, kind: MarkKind::Deployment, name })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_in_the_order_of_their_times() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path(), 0).expect("no file"), []);
        "v1.4 (canary)".parse::<MarkName>().expect("a name").add_to(folder.path(), 200).expect("written");
        add_reload(folder.path(), 100).expect("written");
        add(folder.path(), "x\n300 deployment\n400 other thing\n\n").expect("written");
        let deployment = Mark { at: 200, kind: MarkKind::Deployment, name: "v1.4 (canary)".to_owned() };
        let reload = Mark { at: 100, kind: MarkKind::Reload, name: String::new() };
        assert_eq!(read(folder.path(), 0).expect("marks"), [reload, deployment.clone()]);
        assert_eq!(read(folder.path(), 150).expect("marks"), [deployment]);
    }

    #[test]
    fn a_long_file_is_read_from_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        for at in 0..8000 {
            add_reload(folder.path(), at).expect("written");
        }
        let marks = read(folder.path(), 0).expect("marks");
        assert!(marks.len() < 8000 && marks.last().is_some_and(|mark| mark.at == 7999), "{}", marks.len());
    }

    #[test]
    fn names_are_one_line() {
        for wrong in ["", "  ", "a\nb", &"x".repeat(61)] {
            assert_eq!(wrong.parse::<MarkName>(), Err(MarkNameError), "{wrong:?}");
        }
    }
}
