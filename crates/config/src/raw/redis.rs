//! `[sessions.redis]`.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

use crate::values::RedisServer;

/// `[sessions.redis]`: where a fleet keeps its sessions, and optionally its ticket keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) topology: Option<RedisTopology>,
    pub(crate) service: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) deadline: Option<Period>,
    pub(crate) prefix: Option<String>,
}

/// Topology of the Redis servers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RedisTopology {
    Single,
    Sentinel,
    Cluster,
}
