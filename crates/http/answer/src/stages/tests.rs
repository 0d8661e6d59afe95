//! Tests of the order of compiled stages.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_access::{NetworkRules, PasswordThreads, Passwords};
use brisk_beacon::Beacons;
use brisk_http::claims::Underscores;
use brisk_http::message::Request;
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_jwt::{KeySet, KeySource, TokenCheck, TokenRules};
use brisk_limits::{LimitSettings, Limits};
use brisk_net::DeadlineWheel;
use brisk_rules::{BodyTemplate, Maps};
use brisk_telemetry::{ConnectionRecord, LogOutputs, Metrics, RequestId, Timeline};
use brisk_transform::replace::{MediaTypes, TextReplacements};
use brisk_upstream::Group;
use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::GroupSettings;
use brisk_variants::{HostVariants, RequestValues, VariedId, VariedSetting};
use brisk_visits::Visits;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tokio::task::LocalSet;

use super::*;
use crate::exchange::Telemetry;
use crate::features::replace_text::ReplaceTextSettings;
use crate::features::signed_links::LinkRule;
use crate::forwarding::Forwarding;
use crate::settings::{
    AccessSettings, Action, AltSvc, Bandwidth, BasicAuth, BodySettings, ClientCert, Consolidation, Cookies,
    FixedResponse, ForwardAuth, HostHeaderSettings, HostHeaders, HostSettings, HostVisits, HstsSettings,
    KeepAlive, LimitKey, Maintenance, MaintenanceSwitch, MappedOrigin, OriginMap, Preconnect, Priority,
    RequestLimit, RouteCompression, RouteConsolidation, RouteHeaders, RouteHints, RoutePath, RouteSettings,
    ServerTiming, TokenAuth, Trace, UpstreamAction, UpstreamPath,
};
use crate::stage::{Groups, HostContext, StageTarget};
use crate::visits::SiteVisits;
use brisk_rules::ResponseHeaders;
use brisk_transform::names::Names;

/// The stages that every route has.
const EVERY: [&str; 5] = ["KeepAlive", "Priority", "EarlyData", "HeadMethod", "ConnectionClose"];

const HSTS: HstsSettings =
    HstsSettings { max_age: Duration::ZERO, include_subdomains: false, preload: false };

const NEVER_COMPRESSED: RouteCompression = RouteCompression { settings: None, is_off: true };

fn compressing() -> RouteCompression {
    RouteCompression { settings: Some(Arc::default()), is_off: false }
}

fn hinting() -> RouteHints {
    RouteHints { settings: Some(Arc::default()), learned: Arc::default() }
}

const KEEP_ALIVE: KeepAlive = KeepAlive { idle: None, requests: Some(1), closes: false };

fn host() -> HostSettings {
    HostSettings::new(brisk_tls::HostSettings::new(["www.example"]))
}

/// A host with every feature.
fn full_host() -> HostSettings {
    let place = MappedOrigin {
        origin: "https://static.example".parse().expect("an origin"),
        prefix: "/_s".parse().expect("a prefix"),
        unchanged: None,
    };
    let consolidation = Consolidation {
        map: Arc::new(OriginMap { origins: vec![place] }),
        cookies: vec![Cookies::default()],
    };
    HostSettings {
        client_certificates: ClientCert::Chain,
        alt_svc: Some(AltSvc::Clear),
        headers: HostHeaderSettings { hsts: Some(HSTS), ..HostHeaderSettings::default() },
        server_timing: Some(ServerTiming::default()),
        visits: Some(HostVisits { share: None, insert: true, network_errors: false }),
        preconnect: Some(Preconnect { path: "/connect".to_owned(), keep_alive: KEEP_ALIVE }),
        consolidation: Some(Arc::new(consolidation)),
        networks: Some(denying()),
        limits: Arc::new([limit()]),
        error_pages: Some(Arc::default()),
        maintenance: Some(maintenance()),
        ..host()
    }
}

/// Networks that some clients are denied by.
fn denying() -> Arc<NetworkRules> {
    let network = "10.0.0.0/8".parse().expect("a network");
    Arc::new(NetworkRules::new([], [network]).expect("one list"))
}

fn maintenance() -> Arc<Maintenance> {
    let switch = MaintenanceSwitch::new("/no/such/file".into());
    Arc::new(Maintenance { switch, page: None, retry_after: Duration::ZERO, allow: Vec::new() })
}

fn upstream() -> RouteSettings {
    let action = Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole));
    RouteSettings::new(RoutePath::Prefix("/".to_owned()), action)
}

fn fixed() -> RouteSettings {
    let response = FixedResponse {
        status: StatusCode::OK,
        content_type: HeaderValue::from_static("text/plain"),
        body: Bytes::new(),
    };
    RouteSettings { action: Action::Fixed(response), ..upstream() }
}

/// A route to an upstream with every feature.
fn full_route() -> RouteSettings {
    RouteSettings {
        body: BodySettings { limit: Some(1), buffers: false },
        compression: compressing(),
        headers: RouteHeaders { requests: Some(Arc::default()), responses: Some(Arc::default()) },
        access: AccessSettings { certificates: Some(Arc::default()), ..AccessSettings::default() },
        error_pages: Some(Arc::default()),
        early_hints: hinting(),
        forward_auth: Some(forward_auth()),
        limits: Arc::new([limit()]),
        trace: Some(Trace::Continue),
        bandwidth: Some(BANDWIDTH),
        log_outputs: LogOutputs::NONE,
        signed_links: Some(links()),
        replace_text: Some(texts()),
        ..upstream()
    }
}

const BANDWIDTH: Bandwidth = Bandwidth { rate: NonZeroU64::MIN, after: 0 };

fn limit() -> RequestLimit {
    let settings = LimitSettings {
        rate: None,
        concurrency: Some(1),
        by: String::new(),
        keys: 1024,
        fleet: None,
        is_dry_run: false,
    };
    let limit = Limits::default().open("limit", settings);
    RequestLimit { limit, by: LimitKey::Client, status: StatusCode::TOO_MANY_REQUESTS }
}

fn forward_auth() -> ForwardAuth {
    ForwardAuth {
        group: "auth".to_owned(),
        path: "/verify".parse().expect("a path"),
        copied: Arc::default(),
        returned: Arc::default(),
    }
}

fn links() -> Arc<LinkRule> {
    Arc::new(LinkRule::with_md5("{decoded_path}"))
}

fn texts() -> ReplaceTextSettings {
    let from = TextReplacements::new(&["a"], MediaTypes::All, false).expect("a short text");
    let to = BodyTemplate::new("b", "text/html", &Maps::default(), None).expect("a text");
    ReplaceTextSettings { from: Arc::new(from), to: [to].into() }
}

/// The host with `visits` measured where it says so, and with a setting that has `values` beside the configured one.
fn context(settings: &HostSettings, values: Option<RequestValues>) -> HostContext<'_> {
    let texts = ["configured", "other"].map(Arc::from).into();
    let varied = |values| VariedSetting { id: VariedId(0), name: "x".into(), texts, values };
    let variants = Arc::new(HostVariants::new("variants", values.map(varied).into_iter().collect()));
    let beacons = Beacons::new(Visits::off());
    HostContext {
        settings,
        names: Rc::new(Names::new(&settings.tls.names).expect("names")),
        headers: ResponseHeaders::new(
            settings.headers.hsts.map(HstsSettings::value),
            &settings.headers.others,
        ),
        visits: settings.visits.as_ref().map(|visits| SiteVisits::new(visits, &beacons, None, &variants)),
        variants,
        forwarding: Rc::new(Forwarding::new(Vec::new(), Underscores::Drop)),
        groups: Groups(&|name| Some(group(name))),
    }
}

/// A group of any name.
fn group(name: &str) -> Rc<Group> {
    // The tasks of the group end with it: no test sends a request.
    let local = LocalSet::new();
    let _entered = local.enter();
    let server = "http://127.0.0.1:1".parse().expect("a URL");
    let state = GroupState::new(GroupSettings::new(name, [server]), &Metrics::new()).expect("a group");
    Group::new(state, &DeadlineWheel::new())
}

fn names(host: Option<&HostContext<'_>>, target: StageTarget<'_>) -> Vec<&'static str> {
    RouteStages::compile(&StageContext { host, target }).names()
}

fn of_route(host: &HostSettings, route: &RouteSettings) -> Vec<&'static str> {
    names(Some(&context(host, None)), StageTarget::Route(route))
}

#[test]
fn a_route_with_every_feature_has_all_stages_in_their_order() {
    let host = full_host();
    let context = context(&host, Some(RequestValues::EarlyHints(vec![true])));
    let route = full_route();
    let all = [
        "LogOutputs",
        "VariantNames",
        "Trace",
        "KeepAlive",
        "Priority",
        "Limits",
        "Access",
        "ErrorPages",
        "Maintenance",
        "SignedLinks",
        "Negotiation",
        "Consolidation",
        "ClientCertificate",
        "AltSvc",
        "HostHeaders",
        "HeaderRules",
        "ReplaceText",
        "PageMeasurement",
        "ServerTiming",
        "Compression",
        "Bandwidth",
        "BodyLimit",
        "EarlyData",
        "ForwardAuth",
        "EarlyHints",
        "HeadMethod",
        "ConnectionClose",
    ];
    assert_eq!(names(Some(&context), StageTarget::Route(&route)), all);
    let place = RouteSettings {
        consolidation: RouteConsolidation { place: Some(0), rewrites: true },
        ..full_route()
    };
    let without = all.into_iter().filter(|name| *name != "ClientCertificate");
    assert_eq!(names(Some(&context), StageTarget::Route(&place)), without.collect::<Vec<_>>());
}

#[test]
fn a_route_pays_for_no_feature_that_it_does_not_use() {
    assert_eq!(of_route(&host(), &upstream()), EVERY);
    let refusing = ["KeepAlive", "Priority", "EarlyData", "TunnelRefusal", "HeadMethod", "ConnectionClose"];
    assert_eq!(of_route(&host(), &fixed()), refusing);
}

#[test]
fn requests_of_high_priority_are_not_examined_for_an_overload() {
    let host = host();
    let stages = of_route(&host, &RouteSettings { priority: Priority::High, ..upstream() });
    assert_eq!(stages, ["KeepAlive", "EarlyData", "HeadMethod", "ConnectionClose"]);
    let context = context(&host, None);
    let internal = names(Some(&context), StageTarget::Internal(&upstream()));
    assert!(!internal.contains(&"Priority"), "{internal:?}");
}

#[test]
fn each_feature_of_a_route_adds_its_stages_alone() {
    let access = AccessSettings { networks: Some(denying()), ..AccessSettings::default() };
    let owners = AccessSettings { certificates: Some(Arc::default()), ..AccessSettings::default() };
    let basic_auth = BasicAuth {
        passwords: Passwords::read("").expect("no users"),
        threads: PasswordThreads::default(),
        challenge: BasicAuth::challenge("inside").expect("ASCII"),
        forwards: false,
    };
    let users = AccessSettings { basic_auth: Some(basic_auth), ..AccessSettings::default() };
    let keys =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"0mBRIEMDqyMWIScAUlUGDShYbV3p9se-xBewdIy1New"}]}"#;
    let source = KeySource::of_file(KeySet::from_json(keys.as_bytes()).expect("a key"));
    let check = Arc::new(TokenCheck::new(TokenRules::default(), source, Vec::new()));
    let tokens = Some(TokenAuth { check, cookie: None, forwards: true });
    let bearers = AccessSettings { tokens, ..AccessSettings::default() };
    let cases: [(RouteSettings, &[&str]); 17] = [
        (RouteSettings { bandwidth: Some(BANDWIDTH), ..upstream() }, &["Bandwidth"]),
        (RouteSettings { limits: Arc::new([limit()]), ..upstream() }, &["Limits"]),
        (RouteSettings { access, ..upstream() }, &["Access"]),
        (RouteSettings { access: owners, ..upstream() }, &["Access"]),
        (RouteSettings { access: users, ..upstream() }, &["Access"]),
        (RouteSettings { access: bearers, ..upstream() }, &["Access"]),
        (RouteSettings { forward_auth: Some(forward_auth()), ..upstream() }, &["ForwardAuth"]),
        (RouteSettings { trace: Some(Trace::Begin), ..upstream() }, &["Trace"]),
        (
            RouteSettings { body: BodySettings { limit: Some(1), buffers: false }, ..upstream() },
            &["BodyLimit"],
        ),
        (RouteSettings { compression: compressing(), ..upstream() }, &["Negotiation", "Compression"]),
        (
            RouteSettings {
                headers: RouteHeaders { requests: Some(Arc::default()), responses: None },
                ..upstream()
            },
            &["HeaderRules"],
        ),
        (
            RouteSettings {
                headers: RouteHeaders { requests: None, responses: Some(Arc::default()) },
                ..upstream()
            },
            &["HeaderRules"],
        ),
        (RouteSettings { signed_links: Some(links()), ..upstream() }, &["SignedLinks"]),
        (RouteSettings { replace_text: Some(texts()), ..upstream() }, &["ReplaceText"]),
        (RouteSettings { log_outputs: LogOutputs::NONE, ..upstream() }, &["LogOutputs"]),
        (RouteSettings { early_hints: hinting(), ..upstream() }, &["EarlyHints"]),
        (RouteSettings { error_pages: Some(Arc::default()), ..upstream() }, &["ErrorPages"]),
    ];
    for (route, added) in cases {
        assert_eq!(added_by(&host(), &route), added, "{route:?}");
    }
}

#[test]
fn each_feature_of_a_host_adds_its_stages_alone() {
    let full = full_host();
    let others = HostHeaders(vec![(http::header::SERVER, HeaderValue::from_static("x"))]);
    let cases: [(HostSettings, &[&str]); 9] = [
        (HostSettings { networks: full.networks.clone(), ..host() }, &["Access"]),
        (HostSettings { alt_svc: full.alt_svc, ..host() }, &["AltSvc"]),
        (HostSettings { client_certificates: full.client_certificates, ..host() }, &["ClientCertificate"]),
        (HostSettings { headers: full.headers.clone(), ..host() }, &["HostHeaders"]),
        (
            HostSettings {
                headers: HostHeaderSettings { hsts: None, others, rules: RouteHeaders::default() },
                ..host()
            },
            &["HostHeaders"],
        ),
        (HostSettings { server_timing: full.server_timing.clone(), ..host() }, &["ServerTiming"]),
        (HostSettings { visits: full.visits.clone(), ..host() }, &["PageMeasurement", "Compression"]),
        (HostSettings { maintenance: full.maintenance.clone(), ..host() }, &["Maintenance"]),
        (HostSettings { consolidation: full.consolidation.clone(), ..host() }, &["Consolidation"]),
    ];
    for (host, added) in cases {
        assert_eq!(added_by(&host, &upstream()), added, "{host:?}");
    }
    let open = AccessSettings { networks: Some(Arc::default()), ..AccessSettings::default() };
    let host_that_denies = HostSettings { networks: full.networks, ..host() };
    assert_eq!(added_by(&host_that_denies, &RouteSettings { access: open, ..upstream() }), [""; 0]);
    let measured = HostSettings { visits: full.visits, ..host() };
    let plain = RouteSettings { compression: NEVER_COMPRESSED, ..upstream() };
    assert_eq!(added_by(&measured, &plain), ["PageMeasurement"]);
}

fn added_by(host: &HostSettings, route: &RouteSettings) -> Vec<&'static str> {
    of_route(host, route).into_iter().filter(|name| !EVERY.contains(name)).collect()
}

#[test]
fn varied_settings_add_hints_and_their_names() {
    let host = host();
    let context = context(&host, Some(RequestValues::EarlyHints(vec![true])));
    let stages = names(Some(&context), StageTarget::Route(&upstream()));
    let expected =
        ["VariantNames", "KeepAlive", "Priority", "EarlyData", "EarlyHints", "HeadMethod", "ConnectionClose"];
    assert_eq!(stages, expected);
}

#[test]
fn responses_without_a_route_have_the_stages_of_their_host() {
    let mut host = full_host();
    host.log_outputs = LogOutputs::NONE;
    host.headers.rules.responses = Some(Arc::default());
    let context = context(&host, None);
    let of_host = ["AltSvc", "HostHeaders", "ServerTiming", "HeadMethod", "ConnectionClose"];
    let unrouted = [
        "LogOutputs",
        "Limits",
        "Access",
        "ErrorPages",
        "Maintenance",
        "AltSvc",
        "HostHeaders",
        "HeaderRules",
        "ServerTiming",
        "HeadMethod",
        "ConnectionClose",
    ];
    assert_eq!(names(Some(&context), StageTarget::Unrouted), unrouted);
    let of_host = [&["Access"], &of_host[..]].concat();
    assert_eq!(names(Some(&context), StageTarget::Beacon), of_host);
    let script = names(Some(&context), StageTarget::Script);
    let with_compression = [
        "Access",
        "Negotiation",
        "AltSvc",
        "HostHeaders",
        "ServerTiming",
        "Compression",
        "HeadMethod",
        "ConnectionClose",
    ];
    assert_eq!(script, with_compression);
    let preconnect = host.preconnect.as_ref().expect("a path");
    let stages = names(Some(&context), StageTarget::Preconnect(preconnect));
    assert_eq!(stages, [&["KeepAlive"], &of_host[..]].concat());
    assert_eq!(names(None, StageTarget::Unrouted), ["HeadMethod", "ConnectionClose"]);
}

/// A request for a page by a browser that takes gzip, on its way through the stages of `route`, and the coding that the page gets.
async fn coding_of_page(route: &RouteSettings, kind: &'static str) -> (HeaderValue, Option<HeaderValue>) {
    let visits = Some(HostVisits { share: Some(1.0), insert: true, network_errors: false });
    let host = HostSettings { visits, ..host() };
    let context = context(&host, None);
    let target = StageTarget::Route(route);
    let stages = RouteStages::compile(&StageContext { host: Some(&context), target });
    let address = SocketAddr::from(([192, 0, 2, 1], 40000));
    let connection = Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true);
    let request = Request::get("https://www.example/")
        .header("accept-encoding", "gzip")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document");
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let telemetry = Rc::new(Telemetry { metrics: Metrics::new(), access_log: None });
    let mut exchange = Exchange::begin(&telemetry, &connection, RequestId(1), &head);
    let mut state = RequestState::new(&head);
    let mut request = ClientRequest::new(head, ClientBody::Empty);
    assert!(stages.request(&mut exchange, &mut request, &mut state).await.is_none());
    let mut response = Response::new(Body::full("<p>It is a long way.</p>".repeat(100)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    stages.response(&exchange, &state, &mut response);
    (request.head.headers[ACCEPT_ENCODING].clone(), response.headers().get(CONTENT_ENCODING).cloned())
}

#[tokio::test]
async fn without_a_setting_of_the_route_only_pages_are_compressed_for_their_script() {
    let silent = upstream();
    let (accepted, coding) = coding_of_page(&silent, "text/html").await;
    assert_eq!((accepted.as_bytes(), coding), (&b"identity"[..], Some(HeaderValue::from_static("gzip"))));
    assert_eq!(coding_of_page(&silent, "text/csv").await.1, None, "a download stays as it is");
    let compressing = RouteSettings { compression: compressing(), ..upstream() };
    let (accepted, coding) = coding_of_page(&compressing, "text/csv").await;
    assert_eq!((accepted.as_bytes(), coding), (&b"identity"[..], Some(HeaderValue::from_static("gzip"))));
    let never = RouteSettings { compression: NEVER_COMPRESSED, ..upstream() };
    let (accepted, coding) = coding_of_page(&never, "text/html").await;
    assert_eq!((accepted.as_bytes(), coding), (&b"gzip"[..], None));
}
