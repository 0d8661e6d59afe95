//! Metrics of overload.

use std::fmt;

use brisk_telemetry::metrics::{Collector, Encoder};

use crate::level::{Source, Work};
use crate::pressure::Pressure;

impl Collector for Pressure {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.gauge("pressure_level", "Degree of overload, from 0 (none) to 4 (critical).")?;
        family.gauge(&[], u64::from(self.level().number()))?;
        let mut family = page.gauge("pressure_source", "Sources of overload, as shares of their limits.")?;
        for source in Source::ALL {
            family.gauge(&[("source", source.name())], self.value(*source))?;
        }
        let mut family = page.gauge("pressure_refused_share", "Share of work that is refused at present.")?;
        for work in Work::ALL {
            family.gauge(&[("work", work.name())], self.share(*work))?;
        }
        let mut family = page.counter("pressure_refusals", "Work that was refused because of overload.")?;
        for work in Work::ALL {
            family.counter(&[("work", work.name())], self.refusals(*work))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brisk_telemetry::Metrics;

    use super::*;
    use crate::level::Level;

    #[test]
    fn level_sources_and_refusals_are_shown_and_documented() {
        let (metrics, pressure) = (Metrics::new(), Pressure::new());
        metrics.register(Arc::clone(&pressure));
        pressure.set_levels(Level::High, Level::Normal);
        pressure.set_share(0, 0.5);
        assert!((0..2).any(|_| pressure.refuses(Work::Low)));
        let page = metrics.render();
        for line in [
            "brisk_pressure_level 2",
            "brisk_pressure_refused_share{work=\"low\"} 0.5",
            "brisk_pressure_refusals_total{work=\"low\"} 1",
            "brisk_pressure_source{source=\"loop-delay\"} 0.0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line}: {page}");
        }
        assert_eq!(metrics.undocumented(include_str!("../../../../docs/metrics.md")), [""; 0]);
    }
}
