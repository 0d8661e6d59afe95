//! Parts of a process: components that the configuration changes.
//!
//! A reload prepares every part before it commits the first: a configuration that one part refuses has changed nothing.

use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A component of the process that the configuration changes.
///
/// A part starts in its constructor. The main thread calls the methods: [`prepare`](Self::prepare) and
/// [`commit`](Self::commit) for each reload, in its runtime, [`stop`](Self::stop) once, after the drain.
pub trait Part {
    /// The settings of the part, borrowed from the `S` of [`Parts`].
    type Settings: ?Sized;

    /// The state for new settings, complete and without effect. Dropping a `Prepared` releases everything that it holds.
    type Prepared: 'static;

    /// Validates `settings` and builds the state for them. Everything that can fail happens here: files are read,
    /// addresses bound, threads started. The current state, and everything that a client or an operator can observe,
    /// stays unchanged.
    fn prepare(&self, settings: &Self::Settings) -> Result<Self::Prepared, PartError>;

    /// Applies the prepared state, after the parts before this one in [`Parts`]: a resource that another part uses until
    /// its own `commit` is released by a later part. Cannot fail: the part itself retries or logs effects that may fail,
    /// such as a request to another machine.
    fn commit(&self, prepared: Self::Prepared);

    /// Ends the work of the part before `deadline`, which [`Parts::stop`] does not enforce. The default does nothing.
    fn stop(&self, deadline: Instant) {
        let _ = deadline;
    }
}

/// Reason for which a part refuses settings: a message for the operator.
#[derive(Debug)]
pub struct PartError(String);

impl PartError {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for PartError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// The parts of a process whose settings come from one configuration `S`, in the order in which they were started.
pub struct Parts<S>(Vec<Box<dyn AnyPart<S>>>);

/// A part whose types are erased, and its settings within `S`.
trait AnyPart<S> {
    fn prepare(&self, settings: &S) -> Result<Commit<'_>, PartError>;
    fn stop(&self, deadline: Instant);
}

type Commit<'p> = Box<dyn FnOnce() + 'p>;

struct Within<P, F> {
    part: P,
    settings: F,
}

impl<S, P, F> AnyPart<S> for Within<P, F>
where
    P: Part,
    F: Fn(&S) -> &P::Settings,
{
    fn prepare(&self, settings: &S) -> Result<Commit<'_>, PartError> {
        let prepared = self.part.prepare((self.settings)(settings))?;
        Ok(Box::new(move || self.part.commit(prepared)))
    }

    fn stop(&self, deadline: Instant) {
        self.part.stop(deadline);
    }
}

impl<S> Parts<S> {
    /// No part yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a part that was started, with the place of its settings in a configuration.
    pub fn add<P>(&mut self, part: P, settings: impl Fn(&S) -> &P::Settings + 'static)
    where
        P: Part + 'static,
    {
        self.0.push(Box::new(Within { part, settings }));
    }

    /// Prepares every part for `settings`. On an error the state prepared so far is dropped, and nothing has changed.
    pub fn prepare(&self, settings: &S) -> Result<PreparedParts<'_>, PartError> {
        self.0.iter().map(|part| part.prepare(settings)).collect::<Result<_, _>>().map(PreparedParts)
    }

    /// Calls [`Part::stop`] in reverse order, so that the parts that a part uses still run. All share `deadline`.
    pub fn stop(&self, deadline: Instant) {
        self.0.iter().rev().for_each(|part| part.stop(deadline));
    }
}

impl<S> Default for Parts<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> fmt::Debug for Parts<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("count", &self.0.len()).finish_non_exhaustive()
    }
}

/// The parts of a process, prepared for new settings.
#[must_use = "the settings have no effect before they are committed"]
pub struct PreparedParts<'p>(Vec<Commit<'p>>);

impl PreparedParts<'_> {
    /// Applies the settings, part by part in the order of the list.
    pub fn commit(self) {
        self.0.into_iter().for_each(|commit| commit());
    }
}

impl fmt::Debug for PreparedParts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedParts").field(&self.0.len()).finish()
    }
}

impl<P: Part + ?Sized> Part for Arc<P> {
    type Settings = P::Settings;
    type Prepared = P::Prepared;

    fn prepare(&self, settings: &Self::Settings) -> Result<Self::Prepared, PartError> {
        (**self).prepare(settings)
    }

    fn commit(&self, prepared: Self::Prepared) {
        (**self).commit(prepared);
    }

    fn stop(&self, deadline: Instant) {
        (**self).stop(deadline);
    }
}

impl<P: Part + ?Sized> Part for Rc<P> {
    type Settings = P::Settings;
    type Prepared = P::Prepared;

    fn prepare(&self, settings: &Self::Settings) -> Result<Self::Prepared, PartError> {
        (**self).prepare(settings)
    }

    fn commit(&self, prepared: Self::Prepared) {
        (**self).commit(prepared);
    }

    fn stop(&self, deadline: Instant) {
        (**self).stop(deadline);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A number in force, and the calls that the parts of a test received.
    struct Number {
        name: &'static str,
        in_force: Cell<u32>,
        refused: Option<u32>,
        done: Rc<RefCell<Vec<String>>>,
    }

    impl Part for Number {
        type Settings = u32;
        type Prepared = u32;

        fn prepare(&self, settings: &u32) -> Result<u32, PartError> {
            self.done.borrow_mut().push(format!("{} prepare", self.name));
            if self.refused == Some(*settings) {
                return Err(PartError::new(format!("{} refuses {settings}", self.name)));
            }
            Ok(*settings)
        }

        fn commit(&self, prepared: u32) {
            self.done.borrow_mut().push(format!("{} commit", self.name));
            self.in_force.set(prepared);
        }

        fn stop(&self, _deadline: Instant) {
            self.done.borrow_mut().push(format!("{} stop", self.name));
        }
    }

    #[test]
    fn all_parts_are_prepared_before_one_is_committed_and_a_refusal_changes_none() {
        let done = Rc::new(RefCell::new(Vec::new()));
        let numbers = ["first", "second", "third"].map(|name| {
            let refused = (name == "third").then_some(7);
            Rc::new(Number { name, in_force: Cell::new(1), refused, done: Rc::clone(&done) })
        });
        let mut parts = Parts::new();
        for number in &numbers {
            parts.add(Rc::clone(number), |settings: &u32| settings);
        }
        parts.prepare(&2).expect("all agree").commit();
        let all = ["first prepare", "second prepare", "third prepare", "first commit", "second commit"];
        assert_eq!(done.take(), [&all[..], &["third commit"]].concat());
        assert_eq!(parts.prepare(&7).expect_err("the third refuses").to_string(), "third refuses 7");
        assert_eq!(done.take(), &all[..3]);
        assert!(numbers.iter().all(|number| number.in_force.get() == 2));
        parts.stop(Instant::now());
        assert_eq!(done.take(), ["third stop", "second stop", "first stop"]);
    }
}
