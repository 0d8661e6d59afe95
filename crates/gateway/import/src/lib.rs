//! Translation of configurations of other servers to those of brisk, with a report about each directive.
//!
//! Each server has a module, which reads directives and forms tables of TOML. Each directive has a class in the [`Report`], also
//! those of which nothing remains.

mod bounded;
mod caddy;
mod cursor;
mod directive;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod haproxy;
mod nginx;
mod report;
mod table;
mod toml;

use std::io;
use std::path::PathBuf;

pub use caddy::caddy;
pub use haproxy::haproxy;
pub use nginx::nginx;
pub use nginx::trial::{Stand, Trial, TrialListener, TrialRequest, nginx_trial};
pub use report::{Class, Entry, Report};

/// Failure to read the configuration of another server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The text is not in the syntax of the server.
    #[error("{}:{line}: {cause}", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The line.
        line: usize,
        /// The mistake and its correction.
        cause: String,
    },
    /// A file cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The files are too large, too many, or include each other.
    #[error("{}: the files include each other, or are more than 1000, larger than 16 MiB or longer than 200,000 directives together", file.display())]
    TooLarge {
        /// The file at which the limit was reached.
        file: PathBuf,
    },
    /// The files have no frontend with an IP address.
    #[error("{}: brisk can listen at no address of it: name the main file, mostly /etc/haproxy/haproxy.cfg, or see the report of `haproxy -c`", file.display())]
    NoFrontend {
        /// The file.
        file: PathBuf,
    },
    /// The files have no site.
    #[error("{}: there is no site in it: name the main file, mostly /etc/caddy/Caddyfile", file.display())]
    NoSite {
        /// The file.
        file: PathBuf,
    },
    /// The files have no `server`.
    #[error("{}: there is no server with an IP address in it: name the main file, mostly /etc/nginx/nginx.conf", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
}

/// Result of a translation.
#[derive(Debug)]
pub struct Imported {
    /// Texts of configurations of brisk. One process serves all hosts at all of its addresses, so servers that only their
    /// addresses separate have files of their own.
    pub files: Vec<String>,
    /// Classes of all directives.
    pub report: Report,
}
