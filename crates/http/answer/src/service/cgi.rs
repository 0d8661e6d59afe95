//! Variables of requests to application servers (RFC 3875 section 4.1, with those that PHP expects), and the script for a path.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use brisk_folder::Beneath;
use brisk_http::cgi::{CgiProtocol, Variables};
use brisk_http::message::{RequestParts, Response};
use brisk_http::path::{RequestPath, one_leading_slash};
use brisk_http::validate::{Refusal, host_of};
use brisk_transform::body::Body;
use brisk_transform::names::Names;
use brisk_upstream::Group;
use brisk_upstream_group::features::cgi::Script;
use brisk_upstream_group::settings::CgiSettings;
use http::{HeaderValue, Method, StatusCode, Version, header};
use percent_encoding::{CONTROLS, percent_decode_str, percent_encode};

use crate::exchange::Exchange;
use crate::files::is_hidden_name;
use crate::forwarding::PROTO;
use crate::redirect;
use crate::variables::RequestValues;

/// A request to an application server.
#[derive(Debug)]
pub(super) struct CgiRequest {
    /// The variables so far: those that depend on the request as it arrived.
    variables: Variables,
    /// Path as the client sent it.
    path: Box<str>,
}

/// Reason why an application server gets no request.
#[derive(Debug)]
pub(super) enum NoScript {
    Refuse(Refusal),
    /// The path is that of a folder, without the slash at its end.
    Redirect(Box<Response<Body>>),
}

impl From<Refusal> for NoScript {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

/// Application, script and rest of a path.
struct Target {
    script_file: Option<Vec<u8>>,
    script_name: Vec<u8>,
    path_info: Vec<u8>,
}

/// Whether bodies for `group` have a stated length, because its servers are application servers.
pub(super) fn needs_length(group: &Group) -> bool {
    is_application(group) && !group.state().settings().cgi.streams_bodies
}

/// Whether requests to `group` are variables.
pub(super) fn is_application(group: &Group) -> bool {
    group.state().settings().cgi_protocol().is_some()
}

/// The scripts of `group`, if its servers are application servers. Without a root, an application may execute scripts too.
pub(super) fn scripts(group: &Group) -> Option<&CgiSettings> {
    let settings = &group.state().settings().cgi;
    is_application(group).then_some(settings)
}

impl CgiRequest {
    /// Begins the variables of a request whose head is as it arrived; `None` for groups of HTTP.
    pub(super) fn begin(group: &Group, exchange: &Exchange, head: &RequestParts) -> Option<Self> {
        if !is_application(group) {
            return None;
        }
        let mut variables = Variables::default();
        let values = RequestValues { exchange, head };
        // First: all further variables are added only if the operator has not set them.
        for param in &group.state().settings().cgi.params {
            variables.add(&param.name, without_controls(&param.value.fill(&values).into_bytes()));
        }
        // Without dot segments, as in all paths for upstreams: otherwise an application would find the path of another route.
        let path = RequestPath::read(head.uri.path()).map_or(Cow::Borrowed("/"), |path| path.forwarded);
        match head.uri.query() {
            Some(query) => variables.add_missing("REQUEST_URI", format!("{path}?{query}")),
            None => variables.add_missing("REQUEST_URI", &*path),
        }
        Some(Self { variables, path: head.uri.path().into() })
    }

    /// Completes the variables with those of the script, the connection, and the head as it is forwarded.
    pub(super) async fn complete(
        mut self,
        group: &Group,
        head: &RequestParts,
        (exchange, names): (&Exchange, &Names),
    ) -> Result<Variables, NoScript> {
        let settings = group.state().settings();
        let path = head.uri.path();
        let target = match &settings.cgi.root {
            Some(root) => self.script(&settings.cgi, root, head).await?,
            None => Target::application(path),
        };
        let all = &mut self.variables;
        all.add_missing("QUERY_STRING", head.uri.query().unwrap_or_default());
        all.add_missing("REQUEST_METHOD", head.method.as_str());
        all.add_missing("SCRIPT_NAME", &target.script_name);
        all.add_missing("PATH_INFO", &target.path_info);
        if let Some(file) = &target.script_file {
            all.add_missing("SCRIPT_FILENAME", file);
        }
        all.add_missing("DOCUMENT_URI", [target.script_name, target.path_info].concat());
        if let Some(root) = &settings.cgi.root {
            all.add_missing("DOCUMENT_ROOT", &**root);
        }
        of_connection(all, head, exchange, names);
        if settings.cgi_protocol() != Some(CgiProtocol::Uwsgi) {
            all.add_missing("GATEWAY_INTERFACE", "CGI/1.1");
            all.add_missing("SERVER_SOFTWARE", "brisk");
            // PHP with `cgi.force_redirect` refuses requests that a web server has not passed on.
            all.add_missing("REDIRECT_STATUS", "200");
        }
        Ok(self.variables)
    }

    /// The script for the path of `head`.
    async fn script(
        &self,
        settings: &CgiSettings,
        root: &str,
        head: &RequestParts,
    ) -> Result<Target, NoScript> {
        // Read again: the path for the upstream may differ from that of the client.
        let path = RequestPath::read(head.uri.path()).map_err(|_| Refusal::bad_request("path"))?.decoded;
        let script = match &settings.files {
            _ if path.split(|byte| *byte == b'/').any(is_hidden_name) => settings.front_controller(),
            None => settings.unseen_script(&path),
            Some(folder) => {
                let folder = Beneath::new(folder);
                // Looked up here: PHP with `cgi.fix_pathinfo` takes a file above a
                // missing script for the script.
                let found = [settings.named_script(&path), settings.index_script(&path)];
                let found = first_existing(&folder, found).await;
                if found.is_none() {
                    self.with_slash(settings, &folder, &path, head).await?;
                }
                found.or_else(|| settings.front_controller())
            }
        };
        let Some(Script { name, path_info }) = script else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "no-script").into());
        };
        let script_file = Some([root.as_bytes(), &name].concat());
        Ok(Target { script_file, script_name: name, path_info })
    }

    /// Fails with a redirect if `path` is a folder with an index script.
    async fn with_slash(
        &self,
        settings: &CgiSettings,
        folder: &Beneath,
        path: &[u8],
        head: &RequestParts,
    ) -> Result<(), NoScript> {
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if !is_read || path.ends_with(b"/") || self.path.ends_with('/') {
            return Ok(());
        }
        let index = settings.index_script(&[path, b"/"].concat());
        if first_existing(folder, [index]).await.is_none() {
            return Ok(());
        }
        // The path of the client: that for the upstream may have another prefix.
        let location = format!("{}/", one_leading_slash(&self.path));
        Err(NoScript::Redirect(Box::new(redirect::final_slash(&location, head))))
    }
}

/// `value` with its control bytes percent-encoded: NUL separates the variables of SCGI.
fn without_controls(value: &[u8]) -> String {
    percent_encode(value, CONTROLS).to_string()
}

impl Target {
    /// All paths belong to one application.
    fn application(path: &str) -> Self {
        let path_info = percent_decode_str(one_leading_slash(path)).collect();
        Self { script_file: None, script_name: Vec::new(), path_info }
    }
}

/// The first of `scripts` that is a file in `folder`.
async fn first_existing<const N: usize>(folder: &Beneath, scripts: [Option<Script>; N]) -> Option<Script> {
    for script in scripts.into_iter().flatten() {
        // Without slashes at its beginning, which would make the path absolute.
        let name = script.name.iter().copied().skip_while(|byte| *byte == b'/').collect();
        if folder.is_file(PathBuf::from(OsString::from_vec(name))).await {
            return Some(script);
        }
    }
    None
}

/// Adds the variables of the connection, the client and the host.
fn of_connection(all: &mut Variables, head: &RequestParts, exchange: &Exchange, names: &Names) {
    let mut text = String::new();
    let mut number = |all: &mut Variables, name: &str, value: &dyn std::fmt::Display| {
        text.clear();
        // A string takes all text.
        let _ = write!(text, "{value}");
        all.add_missing(name, &text);
    };
    all.add_missing("SERVER_PROTOCOL", protocol(head.version));
    // That of a trusted proxy in front, if there is one.
    let stated = head.headers.get(PROTO).map(HeaderValue::as_bytes);
    let is_secure = stated.map_or(exchange.connection().client.secure, |scheme| scheme == b"https");
    all.add_missing("REQUEST_SCHEME", if is_secure { "https" } else { "http" });
    if is_secure {
        all.add_missing("HTTPS", "on");
    }
    let client = exchange.client();
    number(all, "REMOTE_ADDR", &client.ip());
    match client.address.port() {
        0 => all.add_missing("REMOTE_PORT", ""),
        port => number(all, "REMOTE_PORT", &port),
    }
    let local = exchange.connection().client.record.borrow().local;
    number(all, "SERVER_ADDR", &local.ip().to_canonical());
    number(all, "SERVER_PORT", &local.port());
    // An arbitrary name that reached the default host is not vouched for.
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let named = host.filter(|authority| names.include(authority)).and_then(host_of);
    match named {
        Some(host) => all.add_missing("SERVER_NAME", host),
        None => number(all, "SERVER_NAME", &local.ip().to_canonical()),
    }
}

/// The version as servers of CGI write it.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}
