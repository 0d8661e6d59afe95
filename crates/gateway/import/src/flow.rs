//! The state of the processing of a request, as nginx processes it at a location.

use crate::condition::When;
use crate::grammar::Directive;
use crate::location::{At, Location};
use crate::scope::Scope;
use crate::variables::Values;

/// Requests at a place of the output that are at a location of the input, under conditions.
#[derive(Clone, Debug)]
pub(crate) struct Flow<'s, 'a> {
    pub(crate) location: &'s Location<'a>,
    /// The blocks in force: those of the location, and of each `if` whose condition holds.
    pub(crate) scope: Scope<'a>,
    pub(crate) at: &'s At,
    pub(crate) when: When,
    pub(crate) values: Values,
    /// The front controller to which paths without a file lead.
    pub(crate) script: Option<String>,
}

impl<'s, 'a> Flow<'s, 'a> {
    /// The first state at a place.
    pub(crate) fn new(location: &'s Location<'a>, at: &'s At) -> Self {
        let (when, values) = (at.when.clone(), at.values.clone());
        Self { location, scope: location.scope.clone(), at, when, values, script: None }
    }

    /// The requests that also meet a condition; none if a route cannot have both conditions.
    pub(crate) fn with(&self, condition: &When) -> Option<Self> {
        let when = self.when.and(condition)?;
        let mut values = self.values.clone();
        values.groups |= condition.has_path();
        Some(Self { when, values, ..self.clone() })
    }

    /// The requests inside of the block of an `if`.
    pub(crate) fn inside(&self, step: &'a Directive) -> Self {
        Self { scope: self.scope.child(step.inner()), ..self.clone() }
    }

    /// The requests at another location.
    pub(crate) fn to(&self, location: &'s Location<'a>) -> Self {
        Self { location, scope: location.scope.clone(), ..self.clone() }
    }
}
