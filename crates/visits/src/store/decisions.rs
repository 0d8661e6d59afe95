//! Decisions on experiments: made once, when the figures allow it, and kept.

use std::collections::HashMap;

use rusqlite::{Transaction, TransactionBehavior, params};

use super::Store;
use crate::error::VisitsError;
use crate::experiment::{Definitions, Experiment, ExperimentId, MOST_ARMS};
use crate::gather::ArmSums;
use crate::sequential::{Decision, decide};

impl Store {
    /// The decisions on the experiments that this process has defined; what can be decided at `now` is.
    pub(crate) fn decide(
        &mut self,
        definitions: &Definitions,
        now: i64,
    ) -> Result<HashMap<ExperimentId, Decision>, VisitsError> {
        let mut decisions = HashMap::new();
        let mut ids = definitions.ids().peekable();
        if ids.peek().is_none() {
            return Ok(decisions);
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let names = &mut self.names;
        let all = || -> Result<(), VisitsError> {
            for id in ids {
                let number = names.experiment(&transaction, id, definitions, now)?;
                let Some(experiment) = definitions.get(id).filter(|_| number != 0) else { continue };
                decisions
                    .extend(decision(&transaction, number, &experiment, now)?.map(|decision| (id, decision)));
            }
            Ok(())
        };
        let done = all().and_then(|()| Ok(transaction.commit()?));
        if done.is_err() {
            self.names.forget();
        }
        done.map(|()| decisions)
    }
}

fn decision(
    transaction: &Transaction<'_>,
    number: u16,
    experiment: &Experiment,
    now: i64,
) -> Result<Option<Decision>, VisitsError> {
    let text = "SELECT decision FROM experiment WHERE id = ?";
    let decided: Option<String> = transaction.prepare_cached(text)?.query_row([number], |row| row.get(0))?;
    if let Some(decision) = decided.as_deref().and_then(Decision::from_text) {
        return Ok(Some(decision));
    }
    let decision = decide(&sums(transaction, number, experiment)?, experiment.margin);
    if let Some(decision) = decision {
        let text = "UPDATE experiment SET decided = ?, decision = ? WHERE id = ?";
        transaction.prepare_cached(text)?.execute(params![now, decision.to_text(), number])?;
        let shown = decision.to_text();
        tracing::info!(experiment = %experiment.name, decision = shown, "the experiment is decided");
    }
    Ok(decision)
}

fn sums(
    transaction: &Transaction<'_>,
    number: u16,
    experiment: &Experiment,
) -> Result<Vec<ArmSums>, VisitsError> {
    let mut arms = vec![ArmSums::default(); experiment.arms.len().min(MOST_ARMS)];
    let text = "SELECT arm, visits, sum, squares FROM arm WHERE experiment = ? AND metric = ?";
    let mut statement = transaction.prepare_cached(text)?;
    let mut found = statement.query(params![number, experiment.metric as u8])?;
    while let Some(row) = found.next()? {
        if let Some(arm) = arms.get_mut(usize::from(row.get::<_, u8>(0)?)) {
            *arm = ArmSums { visits: row.get::<_, i64>(1)? as u64, sum: row.get(2)?, squares: row.get(3)? };
        }
    }
    Ok(arms)
}
