//! `[sessions.redis]`.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

use super::values::RedisServer;

/// `[sessions.redis]`: where a fleet keeps its sessions, and optionally its ticket keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    pub servers: Vec<RedisServer>,
    pub topology: Option<RedisTopology>,
    pub service: Option<String>,
    pub username: Option<String>,
    pub password_file: Option<PathBuf>,
    pub sentinel_username: Option<String>,
    pub sentinel_password_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub deadline: Option<Period>,
    pub prefix: Option<String>,
}

/// Topology of the Redis servers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RedisTopology {
    Single,
    Sentinel,
    Cluster,
}
