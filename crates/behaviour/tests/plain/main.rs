//! Behaviour that tests show without external programs, one module per behaviour.

mod activation;
mod attacks_gateway;
mod attacks_gone;
mod attacks_h2;
mod attacks_streams;
mod attacks_uploads;
mod check;
mod compress_rights;
mod http3;
mod nagle;
mod proxy_protocol;
mod rates;
mod records;
mod reload;
mod routes;
mod server_timing;
mod silent_operators;
mod smuggling;
mod speed;
mod unknown_hosts;
mod uploads_beside;
mod upstream_limits;
mod upstream_reload;
mod upstream_resets;
mod visit_store;
mod websocket;
