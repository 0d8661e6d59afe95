//! A directive of a program, with its condition.

use std::rc::Rc;

use crate::caddy::matcher::Formula;
use crate::directive::Directive;

/// A directive that is executed for the requests that meet its condition.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) directive: &'a Directive,
    /// Arguments without the matcher: `respond /a 404` has `404`.
    pub(crate) args: Vec<String>,
    pub(crate) formula: Rc<Formula>,
    pub(crate) has_matcher: bool,
    /// Steps of the block of `handle`, `handle_path` or `route`, or of the named route of `invoke`.
    pub(crate) inner: Vec<Self>,
    /// Of the steps of a block with the same group, only the first whose condition holds is executed.
    pub(crate) group: Option<Group>,
    /// Whether the step, or one inside of it, refuses requests.
    pub(crate) restricts: bool,
    /// Work that the step causes each time.
    pub(crate) size: usize,
}

/// Directives of which one excludes the others: `handle` and `handle_path`, `rewrite`, and `root`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Handle,
    Rewrite,
    Root,
}

impl Step<'_> {
    /// The argument of `args` at `index`; empty if it is missing.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// Whether requests may pass without the step, so that one with a condition that brisk lacks can be left out.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(
            &*self.directive.name,
            "header"
                | "encode"
                | "log_skip"
                | "skip_log"
                | "log_append"
                | "log_name"
                | "log_level"
                | "tracing"
                | "push"
        )
    }

    /// The part of the path that a `handle_path` removes: `/api` for `/api/*`.
    pub(crate) fn stripped(&self) -> Option<&str> {
        (self.directive.name == "handle_path").then(|| {
            let path = self.directive.arg(0);
            path.strip_suffix('*').unwrap_or(path).trim_end_matches('/')
        })
    }
}

/// Whether this importer reads directives with the `name`.
pub(crate) fn is_known(name: &str) -> bool {
    matches!(
        name,
        "tracing"
            | "map"
            | "vars"
            | "fs"
            | "root"
            | "log_append"
            | "skip_log"
            | "log_skip"
            | "log_name"
            | "log_level"
            | "header"
            | "request_body"
            | "redir"
            | "method"
            | "rewrite"
            | "uri"
            | "try_files"
            | "basicauth"
            | "basic_auth"
            | "forward_auth"
            | "request_header"
            | "encode"
            | "push"
            | "intercept"
            | "templates"
            | "invoke"
            | "handle"
            | "handle_path"
            | "route"
            | "abort"
            | "error"
            | "respond"
            | "metrics"
            | "reverse_proxy"
            | "php_fastcgi"
            | "file_server"
            | "acme_server"
    )
}
