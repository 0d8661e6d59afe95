//! Keys of requests to application servers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CgiKeys {
    /// Scripts and variables of [application servers](#fastcgi-uwsgi-and-scgi).
    pub cgi: ScriptKeys,
}

/// `[upstream.NAME.cgi]`: scripts and variables of requests to servers of FastCGI, uwsgi and SCGI.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptKeys {
    /// Folder with the scripts, as the application server finds it: `DOCUMENT_ROOT`. Without it, one application gets all paths as
    /// `PATH_INFO`.
    pub root: Option<String>,
    /// The folder of `root` on this machine, in which brisk looks up scripts; `"none"` if it has no such folder.
    pub files: Option<Files>,
    /// Script of a folder, for paths with a slash at the end.
    pub index: Option<String>,
    /// Front controller: script below `root` for paths that name no script.
    pub script: Option<String>,
    /// Ends of the names of scripts. Other files are never executed, and files with these names are never sent by a route with
    /// `static` whose `fallback` is this upstream.
    pub suffixes: Option<Vec<String>>,
    /// Whether the path of a script may go on after its name, as `PATH_INFO`: `/index.php/a/b`.
    pub path_info: Option<bool>,
    /// Whether a body of unknown length is sent as it arrives, with an empty `CONTENT_LENGTH`: for applications of FastCGI that
    /// read it to its end. PHP does not.
    pub stream_bodies: Option<bool>,
    /// Further variables; values may have [variables](pages.md#variables) of requests. A name that brisk sets too gets this
    /// value.
    pub params: BTreeMap<String, String>,
}

/// `files`: the folder of the scripts on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// None.
    None,
    /// This folder.
    Folder(PathBuf),
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a folder in quotes, or \"none\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Files, E> {
                Ok(if text == "none" { Files::None } else { Files::Folder(text.into()) })
            }
        }
        deserializer.deserialize_str(Text)
    }
}
