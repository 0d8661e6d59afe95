//! Continuation of a program after a directive.

use crate::caddy::plan::Action;

/// Continuation after a directive.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// The steps inside of the directive follow.
    Enter,
    Finish(Action),
    /// Requests with a file continue; for those without one, a directive may state the rest.
    Files(Option<Absent>),
}

/// Requests without a file.
#[derive(Clone, Debug)]
pub(crate) enum Absent {
    /// They continue with this path.
    Path(String),
    /// They have this response.
    Responds(Action),
}

impl Flow {
    /// The route refuses requests.
    pub(crate) const REFUSE: Self = Self::Finish(Action::Refuse);
}
