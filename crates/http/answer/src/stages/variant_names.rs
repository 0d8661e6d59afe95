//! Values of varied settings that the client's connection has, for the access log.

use std::sync::Arc;

use brisk_variants::HostVariants;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Adds the values of the connection to the access log. Compiled if settings of the host vary between connections.
#[derive(Debug)]
pub(super) struct VariantNamesStage {
    variants: Arc<HostVariants>,
}

impl Stage for VariantNamesStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let variants = &context.host?.variants;
        (!variants.is_empty()).then(|| Self { variants: Arc::clone(variants) })
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.name_variants(&self.variants);
        Flow::Continue
    }
}
