//! For tests only: the clients and servers around a gateway, started and stopped by the test that needs them.

pub mod apache;
pub mod brisk;
pub mod ca;
pub mod ca_site;
pub mod client;
pub mod datagram_relay;
pub mod early;
pub mod envoy;
pub mod fuzz;
pub mod haproxy;
pub mod http1;
pub mod knot;
pub mod nginx;
pub mod origin;
pub mod pebble;
pub mod process;
pub mod programs;
pub mod quic;
pub mod quic_pair;
pub mod redis;
pub mod relay;
pub mod rsa;
pub mod rsyslog;
pub mod step_ca;
pub mod token;
pub mod uninterrupted;
