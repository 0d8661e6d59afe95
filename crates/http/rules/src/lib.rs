//! Rules about requests, without I/O: the lookup of a route, its conditions, the path for an upstream, requests that are processed
//! as early data, changes of headers, targets of redirects and bodies with variables, shares of visitors,
//! sticky cookies, and URLs and cookies of upstreams in their responses.

mod body_template;
mod conditions;
mod early_data;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod header_rules;
mod map_pattern;
mod pairs;
mod pattern;
mod redirect_target;
mod response_urls;
mod route;
mod share;
mod split;
mod sticky;
mod template;
mod upstream_path;
mod variable;

pub use body_template::BodyTemplate;
pub use conditions::{Conditions, Examined, Excess, Failing, ValueTest};
pub use early_data::{EarlyDataPolicy, EarlyPath, EarlyPathError};
pub use header_rules::{
    FilledValues, HeaderRule, HeaderRules, HostHeaders, ResponseHeaders, RouteHeaders, RuleValue, Statuses,
};
pub use map_pattern::MapPattern;
pub use pairs::{Pairs, cookies, first_cookie, first_parameter};
pub use pattern::{GroupPattern, Pattern};
pub use redirect_target::{NoLocation, RedirectTarget};
pub use response_urls::{CookieRules, SameSite, UrlPrefixes};
pub use route::{RoutePath, Routes};
pub use share::{Bucket, Share};
pub use split::{SplitCookie, SplitSettings};
pub use sticky::StickySettings;
pub use template::{Filled, Map, Maps, Outcome, Template, Values};
pub use upstream_path::{PathRewrite, UpstreamPath};
pub use variable::Variable;
