//! A route with everything prepared that does not depend on a request.

use std::rc::Rc;
use std::sync::Arc;

use brisk_coding::Coding;
use brisk_http_connection::Connection;
use brisk_upstream::Group;
use brisk_visits::ExperimentId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version, header};

use crate::compress::Compression;
use crate::consolidate::Consolidated;
use crate::early_data::EarlyDataPolicy;
use crate::error::ServiceError;
use crate::experiments::{ByArm, ExperimentSettings, Values};
use crate::files::StaticFiles;
use crate::header_rules::HeaderRules;
use crate::hints::{EarlyHints, EarlyHintsSettings};
use crate::settings::{Action, FixedResponse, HostSettings, Page, Redirect, RouteSettings, UpstreamPath};
use crate::stages::OfRoute;

#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: Arc<str>,
    pub(super) body_limit: u64,
    pub(super) buffer_request: bool,
    pub(super) early_data: EarlyDataPolicy,
    pub(super) stages: OfRoute,
    pub(super) request_headers: Option<Arc<HeaderRules>>,
    pub(super) hints: Option<Rc<EarlyHints>>,
    /// Hints that connections have by an experiment.
    pub(super) drawn_hints: Option<ByArm<Option<Rc<EarlyHints>>>>,
    pub(super) action: Prepared,
}

/// An action, with everything prepared that does not depend on a request.
#[derive(Debug)]
pub(super) enum Prepared {
    Upstream { group: Rc<Group>, path: UpstreamPath },
    Static(Box<StaticFiles>),
    Fixed { status: StatusCode, headers: HeaderMap, body: Bytes },
    Redirect(Redirect),
    Page(Page),
}

impl Route {
    /// Whether a request may get hints: on some connections, where that is drawn. What a page measured is judged alike for all.
    pub(super) fn may_hint(&self, version: Version) -> bool {
        version == Version::HTTP_2 && (self.hints.is_some() || self.drawn_hints.is_some())
    }

    /// The hints for requests on a connection.
    pub(super) fn hints(&self, connection: &Connection) -> Option<&Rc<EarlyHints>> {
        let drawn = self.drawn_hints.as_ref().and_then(|drawn| drawn.of(connection));
        drawn.unwrap_or(&self.hints).as_ref()
    }

    pub(super) fn new(
        route: &RouteSettings,
        host: &HostSettings,
        experiments: &[(ExperimentId, Arc<ExperimentSettings>)],
        group: &impl Fn(&str) -> Option<Rc<Group>>,
    ) -> Result<Self, ServiceError> {
        let path = route.path.as_str();
        let action = match &route.action {
            Action::Upstream(upstream) => {
                let unknown = || ServiceError::UnknownGroup { name: upstream.group.clone() };
                Prepared::Upstream { group: group(&upstream.group).ok_or_else(unknown)?, path: upstream.path }
            }
            Action::Static(files) => Prepared::Static(Box::new(StaticFiles::new(files, path))),
            Action::Fixed(response) => prepared(response),
            Action::Redirect(redirect) => Prepared::Redirect(redirect.clone()),
            Action::Page(page) => Prepared::Page(page.clone()),
        };
        let root = match &route.action {
            Action::Static(files) => Some(files.root.clone()),
            _ => None,
        };
        let may_leak = matches!(action, Prepared::Upstream { .. } | Prepared::Page(_));
        let hints = route.early_hints.as_ref().map(EarlyHints::new);
        let drawn_hints = drawn_hints(hints.as_ref(), &action, experiments);
        Ok(Self {
            path: path.into(),
            body_limit: route.body_limit.unwrap_or(u64::MAX),
            buffer_request: route.buffer_request,
            early_data: route.early_data.clone(),
            stages: OfRoute {
                consolidated: host.consolidation.as_ref().map(|settings| {
                    Consolidated::new(settings, route.place, route.rewrite, route.compression.is_some())
                }),
                is_never_compressed: route.is_never_compressed,
                compression: route
                    .compression
                    .as_ref()
                    .map(|settings| Compression::drawn(settings, may_leak, root, levels(experiments))),
                rules: route.response_headers.clone(),
                keep_alive: route.keep_alive,
            },
            request_headers: route.request_headers.clone(),
            hints,
            drawn_hints,
            action,
        })
    }
}

/// The hints that connections have by an experiment, on a route that has `hints` otherwise.
fn drawn_hints(
    hints: Option<&Rc<EarlyHints>>,
    action: &Prepared,
    experiments: &[(ExperimentId, Arc<ExperimentSettings>)],
) -> Option<ByArm<Option<Rc<EarlyHints>>>> {
    if !matches!(action, Prepared::Upstream { .. }) {
        return None;
    }
    let usual = || EarlyHints::new(&Arc::new(EarlyHintsSettings::usual()));
    experiments.iter().find_map(|(id, one)| {
        let Values::EarlyHints(values) = &one.values else { return None };
        let on = hints.cloned().unwrap_or_else(usual);
        Some(ByArm::new(*id, values.iter().map(|is_on| is_on.then(|| Rc::clone(&on)))))
    })
}

/// The levels that connections have by experiments.
fn levels(experiments: &[(ExperimentId, Arc<ExperimentSettings>)]) -> Vec<(Coding, ByArm<u8>)> {
    let levels = experiments.iter().filter_map(|(id, one)| match &one.values {
        Values::Level(coding, levels) => Some((*coding, ByArm::new(*id, levels.iter().copied()))),
        _ => None,
    });
    levels.collect()
}

fn prepared(response: &FixedResponse) -> Prepared {
    let mut headers = HeaderMap::new();
    if !response.body.is_empty() {
        headers.insert(header::CONTENT_TYPE, response.content_type.clone());
    }
    Prepared::Fixed { status: response.status, headers, body: response.body.clone() }
}
