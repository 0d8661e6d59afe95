//! The state of the processing of a request, as nginx processes it at a location.

use crate::directive::Directive;
use crate::nginx::access::foreign;
use crate::nginx::branch::is_missing_script;
use crate::nginx::condition::When;
use crate::nginx::location::{At, Location, program};
use crate::nginx::scope::Scope;
use crate::nginx::variables::Values;

/// A changed path: the expression and its replacement.
pub(crate) type Rewrite = (String, String);

/// Requests at a place of the output that are at a location of the input, under conditions.
#[derive(Clone, Debug)]
pub(crate) struct Flow<'s, 'a> {
    pub(crate) location: &'s Location<'a>,
    /// The blocks in force: those of the location, and of each `if` whose condition holds.
    pub(crate) scope: Scope<'a>,
    pub(crate) at: &'s At,
    pub(crate) when: When,
    pub(crate) values: Values,
    /// `signed_links` of the routes, because an `if` has refused all other requests.
    pub(crate) links: Option<String>,
    /// The front controller to which paths without a file lead.
    pub(crate) script: Option<String>,
    /// Whether the server gets the path as sent, without the prefix of the location: `strip_prefix`.
    pub(crate) strips: bool,
    /// Paths of files that `try_files` forms: an expression for the path of the request, and templates.
    pub(crate) formed: Option<(String, Vec<String>)>,
    /// Changes of paths without a file: `if (!-e $request_filename)`.
    pub(crate) absent: Vec<Rewrite>,
    /// Whether clients need a certificate (`client_certificate`), because an `if` has refused all others.
    pub(crate) certified: bool,
}

impl<'s, 'a> Flow<'s, 'a> {
    /// The first state at a place.
    pub(crate) fn new(location: &'s Location<'a>, at: &'s At) -> Self {
        let (when, values) = (at.when.clone(), at.values.clone());
        let scope = location.scope.clone();
        let (links, script, formed, absent) = (None, None, None, Vec::new());
        let (strips, certified) = (false, false);
        Self { location, scope, at, when, values, links, script, strips, formed, absent, certified }
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

    /// Whether a route for these requests also has all restrictions of `next`, to which nginx directs them inside: `allow`,
    /// `auth_basic`, `limit_req` and others. The error is the reason why not.
    pub(crate) fn same_restrictions(&self, next: &Self) -> Result<(), String> {
        let ids = |scope: &Scope<'a>, names: &[&str]| -> Vec<usize> {
            // By number: a line of both is inherited from one level. Equal texts are not compared, which
            // refuses more.
            scope.all_of(names).1.iter().map(|directive| directive.id).collect()
        };
        let own = next.location.scope.own();
        let is_here = std::ptr::eq(self.location, next.location);
        // A refusal of PHP for missing scripts is no condition: brisk requests no script that is missing.
        let has_program = program(own).iter().any(|step| !is_missing_script(next, step));
        if !is_here && (has_program || own.iter().any(|line| line.name == "limit_except")) {
            return Err("the location to which the requests go has conditions of its own".to_owned());
        }
        let mut is_restricted = false;
        for names in [
            &["allow", "deny"][..],
            &["auth_basic"],
            &["auth_basic_user_file"],
            &["auth_request"],
            &["limit_req"],
            &["limit_conn"],
        ] {
            let theirs = ids(&next.scope, names);
            is_restricted |= !theirs.is_empty();
            // More restrictions here than there are no harm, since nginx has checked these before.
            if !theirs.is_empty() && theirs != ids(&self.scope, names) {
                return Err(format!(
                    "the location to which the requests go has {} of its own",
                    names.join(" or ")
                ));
            }
        }
        if is_restricted && ids(&next.scope, &["satisfy"]) != ids(&self.scope, &["satisfy"]) {
            return Err("the location to which the requests go has satisfy of its own".to_owned());
        }
        match foreign(&next.scope, &[]) {
            Some(other) => Err(format!("brisk does not have the restriction {}", other.name)),
            None => Ok(()),
        }
    }

    /// The requests at another location.
    pub(crate) fn to(&self, location: &'s Location<'a>) -> Self {
        Self { location, scope: location.scope.clone(), formed: None, ..self.clone() }
    }
}
