//! `pipeline`: the number of requests on an HTTP/1.1 connection before their responses.

mod keys;

use std::ops::RangeInclusive;

use super::{Context, GroupFeature, GroupScope};
pub use keys::PipelineKeys;

/// Permitted number of requests in a pipeline.
const PIPELINES: RangeInclusive<u8> = 1..=32;

/// `pipeline` of groups.
#[derive(Debug)]
pub struct PipelineFeature;

impl GroupFeature for PipelineFeature {
    type Keys = PipelineKeys;
    type Settings = usize;

    fn unset() -> usize {
        1
    }

    fn resolve(keys: &PipelineKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> usize {
        let path = group.key("pipeline");
        let pipeline = context.findings.within(&path, keys.pipeline, 1, &PIPELINES);
        if pipeline > 1 && group.keys.proxy_protocol.proxy_protocol.is_some() {
            context.findings.wrong(
                &path,
                "has no effect with `proxy_protocol`, with which clients do not share connections: remove one of the two",
            );
        }
        if pipeline > 1 && group.cgi_protocol().is_some() {
            context.findings.wrong(&path, "has no effect: only connections over HTTP/1.1 have pipelines");
        }
        if pipeline > 1 && group.keys.retry.is_off() {
            context.findings.wrong(
                &path,
                "a pipeline needs `retry = true`: requests behind a slow response, or on a connection that ends, are sent again",
            );
        }
        pipeline.into()
    }
}
