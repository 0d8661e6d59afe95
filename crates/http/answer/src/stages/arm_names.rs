//! Arms of the client's connection in experiments, for the access log.

use std::rc::Rc;

use brisk_trials::HostExperiments;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Adds the arms of the connection to the access log. Compiled if the host takes part in experiments.
#[derive(Debug)]
pub(super) struct ArmNamesStage {
    experiments: Rc<HostExperiments>,
}

impl Stage for ArmNamesStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let experiments = &context.host?.experiments;
        (!experiments.is_empty()).then(|| Self { experiments: Rc::clone(experiments) })
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.name_arms(&self.experiments);
        Flow::Continue
    }
}
