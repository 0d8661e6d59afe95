//! Parts that the behaviour tests share: gateways, clients and upstreams, started as real programs.
//!
//! The tests are three programs, by the external programs that they need: `plain` needs none, `debian` needs packages of
//! Debian, `browsers` needs Chromium or programs built from Go modules. They link few crates of brisk, and none of the request
//! path: after most changes only `brisk` itself is compiled before a test runs.

pub mod dashboard;
pub mod fleet;
pub mod h2;
pub mod h2_client;
pub mod h2_origin;
pub mod linked;
pub mod openssl;
pub mod program;
pub mod site;
pub mod websocket;
