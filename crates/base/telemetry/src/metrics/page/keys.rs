//! Metrics of private-key operations.

use std::fmt;
use std::sync::Arc;

use crate::metrics::encoder::Encoder;
use crate::metrics::histogram::Totals;
use crate::metrics::key_operations::KeySeries;

pub(super) fn operations(page: &mut Encoder<'_, '_>, all: &[Arc<KeySeries>]) -> fmt::Result {
    let mut family =
        page.counter("key_operations", "Private-key operations, by engine, algorithm and outcome.")?;
    for series in all {
        for (outcome, count) in series.outcomes().filter(|(_, count)| *count > 0) {
            let labels =
                [("engine", series.engine), ("algorithm", series.algorithm), ("outcome", outcome.name())];
            family.counter(&labels, count)?;
        }
    }
    let mut family =
        page.seconds("key_operation_wait", "Duration of a key operation without its computation.")?;
    for series in all {
        family.histogram(&labels(series), &Totals::of([&series.wait]))?;
    }
    let mut family =
        page.seconds("key_operation_compute", "Duration of the computation of a key operation.")?;
    for series in all {
        let totals = Totals::of([&series.compute]);
        // Operations that no engine performed have no time of computation; an empty
        // histogram would suggest one.
        if totals.count() > 0 {
            family.histogram(&labels(series), &totals)?;
        }
    }
    Ok(())
}

fn labels(series: &KeySeries) -> [(&'static str, &'static str); 2] {
    [("engine", series.engine), ("algorithm", series.algorithm)]
}
