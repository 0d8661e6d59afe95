//! Code shared by the behaviour tests: gateways, clients and upstreams, started as real programs.
//!
//! The tests are three binaries, by the external programs that they need: `plain` needs none, `debian` needs packages of
//! Debian, `browsers` needs Chromium or programs built from Go modules. They depend on few crates of brisk, and on none that
//! processes requests: after most changes only `brisk` itself is compiled before a test runs.

pub mod dashboard;
pub mod field_lines;
pub mod fleet;
pub mod h2;
pub mod h2_client;
pub mod h2_origin;
pub mod h3_client;
pub mod linked;
pub mod memory;
pub mod openssl;
pub mod page;
pub mod pauses;
pub mod program;
pub mod site;
pub mod tcp;
pub mod websocket;
