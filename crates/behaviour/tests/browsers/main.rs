//! Behaviour that tests show with Chromium and with programs built from Go modules or installed by pip, one module per behaviour. `make setup` installs
//! them.

mod acme;
mod acme_between;
mod acme_dns;
mod acme_fleet;
mod acme_on_demand;
mod acme_orders;
mod acme_step_ca;
mod beacons;
mod chromium;
mod consolidate;
mod dashboard_page;
mod dashboard_pictures;
mod devtools;
mod dictionaries;
mod early_hints;
mod fleet_clients;
mod grpc;
mod h2spec;
mod http3_browsers;
mod http3_clients;
mod net_log;
mod pages_in_chromium;
mod profiles;
mod upstream_envoy;
mod websocket_h2;
