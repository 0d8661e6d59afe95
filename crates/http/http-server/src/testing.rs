//! Server without sockets, for tests of protocols and for libFuzzer.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_answer::settings::{
    Action, FixedResponse, HostSettings, HttpsRedirect, RoutePath, RouteSettings, ServiceSettings,
    Underscores, Variants,
};
use brisk_answer::{Service, Telemetry};
use brisk_budget::Budgets;
use brisk_http_connection::Connection;
use brisk_http_connection::settings::HttpSettings;
use brisk_net::DeadlineWheel;
use brisk_pressure::Pressure;
use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::driver::{CurrentService, Http};

/// Length of the response to `/big`, in bytes.
pub(crate) const BIG: usize = 200_000;

/// Inputs of a connection with a host `a`, which responds to `/` with `hello` and to `/big` with [`BIG`] bytes.
pub(crate) fn http() -> Http {
    with_settings(HttpSettings { headers: 10, h2_streams: 8, h2_resets: 5, ..HttpSettings::default() })
}

/// The same with other settings.
pub(crate) fn with_settings(settings: HttpSettings) -> Http {
    let address = SocketAddr::from(([192, 0, 2, 1], 40000));
    let connection = Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true);
    let settings = Rc::new(settings);
    let budgets = Arc::new(Budgets::new(&settings.limits()));
    let service = CurrentService::new(Rc::new(service()), budgets, Pressure::new());
    let deadline = DeadlineWheel::new().register();
    let drain = brisk_net::drain::channel().1;
    Http { service, connection, settings, deadline, drain }
}

fn service() -> Service {
    let fixed = |path: &str, body: Vec<u8>| {
        let response = FixedResponse {
            status: StatusCode::OK,
            content_type: HeaderValue::from_static("text/plain"),
            body: Bytes::from(body),
        };
        RouteSettings::new(RoutePath::Exact(path.to_owned()), Action::Fixed(response))
    };
    let routes = vec![fixed("/", b"hello".to_vec()), fixed("/big", vec![b'x'; BIG])];
    let settings = ServiceSettings {
        hosts: vec![HostSettings { routes, ..HostSettings::new(brisk_tls::HostSettings::new(["a"])) }],
        unknown_host: brisk_certs::UnknownName::Default,
        trusted_proxies: Vec::new(),
        client_header: None,
        underscores: Underscores::Drop,
        variants: Variants::default(),
        beacons: None,
        redirect: HttpsRedirect::new(443),
        challenges: None,
    };
    let telemetry = Telemetry { metrics: Metrics::new(), access_log: None };
    Service::new(&settings, telemetry, |_| None).expect("a service")
}
