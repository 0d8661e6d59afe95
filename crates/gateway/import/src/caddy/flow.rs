//! Continuation of a program after a directive.

use crate::caddy::context::Context;
use crate::caddy::plan::Action;
use crate::directive::Directive;

/// Effect of a directive that is not carried.
pub(crate) const REFUSES: &str = "until then the route refuses requests";

/// Continuation after a directive.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// The steps inside of the directive follow, as those of `handle` and `route`.
    Enter,
    Finish(Action),
    /// Requests with a file continue; for those without one, a directive such as `try_files` may state the rest.
    Files(Option<Absent>),
}

/// Requests without a file, for which `try_files` or `php_fastcgi` states the rest.
#[derive(Clone, Debug)]
pub(crate) enum Absent {
    /// They continue with this path, such as `/index.html`.
    Path(String),
    /// They have this response, such as status 404 for `=404`.
    Responds(Action),
}

impl Flow {
    /// The route refuses requests, by [`Action::Refuse`].
    pub(crate) const REFUSE: Self = Self::Finish(Action::Refuse);

    /// [`Self::REFUSE`], because of a directive that is not carried.
    pub(crate) fn refused(context: &Context<'_>, directive: &Directive, reason: &str) -> Self {
        context.missing(directive, reason, REFUSES);
        Self::REFUSE
    }
}
