//! Keys of pipelines.

use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineKeys {
    /// Maximum number of requests in a [pipeline](#pipelines), up to 32. Requires `retry`.
    pub pipeline: Option<u8>,
}
