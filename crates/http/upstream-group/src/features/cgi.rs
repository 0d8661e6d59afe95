//! `cgi`: scripts and variables of requests to servers of FastCGI, uwsgi and SCGI.

mod keys;
mod resolve;
mod scripts;

use std::path::PathBuf;

use brisk_rules::Template;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{CgiKeys, Files, ScriptKeys};
pub use scripts::Script;

/// Scripts and variables of requests to application servers.
#[derive(Clone, Debug, PartialEq)]
pub struct CgiSettings {
    /// Folder with the scripts as the server finds it, without a slash at its end. Default: none; the server then has one
    /// application, which gets all paths.
    pub root: Option<Box<str>>,
    /// The same folder on this machine, in which scripts are looked up. Default: none.
    pub files: Option<PathBuf>,
    /// Script of folders. Default: `index.php`.
    pub index: Box<str>,
    /// Ends of the names of scripts. Default: `.php`.
    pub suffixes: Vec<Box<str>>,
    /// Whether the path of a script may go on after its name. Default: no.
    pub has_path_info: bool,
    /// Path below the root of the script for paths that name none. Default: none.
    pub script: Option<Box<str>>,
    /// Whether bodies of unknown length are sent as they arrive, with an empty `CONTENT_LENGTH`. Only with FastCGI. Default: no;
    /// they are gathered first.
    pub streams_bodies: bool,
    /// Further variables, which replace those of brisk.
    pub params: Vec<Param>,
}

/// A variable of the operator.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name of the variable.
    pub name: Box<str>,
    /// Value as written.
    text: Box<str>,
    /// Value.
    pub value: Template,
}

impl PartialEq for Param {
    fn eq(&self, other: &Self) -> bool {
        // By the text: a `Template` has no equality, and equal texts have equal templates. A reload that
        // changes nothing must find equal settings, or it would close the connections of the group.
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Default for CgiSettings {
    fn default() -> Self {
        Self {
            root: None,
            files: None,
            index: "index.php".into(),
            suffixes: vec![".php".into()],
            has_path_info: false,
            script: None,
            streams_bodies: false,
            params: Vec::new(),
        }
    }
}

/// `cgi` of groups.
#[derive(Debug)]
pub struct CgiFeature;

impl GroupFeature for CgiFeature {
    type Keys = CgiKeys;
    type Settings = CgiSettings;

    fn resolve(keys: &CgiKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> CgiSettings {
        resolve::settings(&keys.cgi, group, context)
    }
}
