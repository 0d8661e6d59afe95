//! What brisk does, seen from outside: the real program between real clients and real upstreams, one module per
//! behaviour. External programs come by `make setup`; without one, its tests fail and say so.

mod h2;
mod site;

mod access_log;
mod admin;
mod alerts;
mod attacks_gateway;
mod attacks_gone;
mod attacks_h2;
mod bad_input;
mod bench;
mod bench_compare;
mod bench_failures;
mod bench_haproxy;
mod bench_schedule;
mod certificates;
mod check;
mod chromium;
mod claims;
mod curl;
mod development;
mod early_data;
mod fleet;
mod fleet_clients;
mod fleet_redis;
mod grpc;
mod h2spec;
mod keys;
mod load;
mod openssl;
mod proxy_protocol;
mod proxying;
mod rates;
mod reload;
mod replay;
mod resumption;
mod routes;
mod smuggling;
mod speed;
mod store_trouble;
mod testssl;
mod upstream_faults;
mod websocket;
