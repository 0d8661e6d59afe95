//! Rules about requests, without I/O: the lookup of a route, its conditions, the path for an upstream, and values of headers with
//! variables.

mod conditions;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod pattern;
mod route;
mod template;
mod upstream_path;
mod variable;

pub use conditions::{Conditions, Examined, ValueTest, cookies, parameters};
pub use pattern::{GroupPattern, Pattern};
pub use route::{RoutePath, Routes};
pub use template::{Filled, Map, Maps, Template, Values};
pub use upstream_path::{PathRewrite, UpstreamPath};
pub use variable::Variable;
