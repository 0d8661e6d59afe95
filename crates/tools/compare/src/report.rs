//! Reports of a comparison: text, Markdown, JSON, and an HTML page.

mod html;
mod json;
mod tables;

use brisk_report::figures::{duration, percent};
use brisk_report::json::timestamp;
use brisk_report::{Machine, wrapped};

use crate::{Comparison, Ended, Plan, Testbed};

/// A finished [`Comparison`] with everything that its reports contain.
#[derive(Debug)]
pub struct Report<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The result.
    pub comparison: &'a Comparison,
    /// Versions of the targets in the order of [`Plan::targets`]; empty if unknown.
    pub versions: Vec<String>,
    /// Why a target is missing, in the order of [`Plan::targets`]; `None` for a present one.
    pub missing: Vec<Option<String>>,
    /// The machine that the comparison ran on.
    pub machine: Machine,
    /// Name and version of the measuring program.
    pub program: &'a str,
}

impl<'a> Report<'a> {
    /// A report of a comparison that was made on this machine.
    pub fn new(plan: &'a Plan, comparison: &'a Comparison, testbed: &Testbed, program: &'a str) -> Self {
        let versions = testbed.servers.iter().map(|server| server.version.clone()).collect();
        let missing = testbed.servers.iter().map(|server| server.missing.clone()).collect();
        Self { plan, comparison, versions, missing, machine: Machine::this(), program }
    }

    /// Text for a terminal: lines of at most `width` characters.
    pub fn text(&self, width: usize) -> String {
        let mut text = format!("{}\n{}\n", self.plan.title, self.outcome());
        for table in tables::all(self, width) {
            text.push('\n');
            text.push_str(&table.to_text(width));
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
            text.extend(notes.iter().map(|note| wrapped(note, width)));
        }
        text
    }

    /// Markdown: the texts of the plan, the machine, the tables.
    pub fn markdown(&self) -> String {
        let published = format!("Published: {}", self.plan.published);
        let published = Some(&published).filter(|_| !self.plan.published.is_empty());
        let about = Some(&self.plan.about).filter(|about| !about.is_empty());
        let mut facts = vec![format!("Machine: {}", self.machine.line())];
        let versions =
            self.versions.iter().filter(|version| !version.is_empty()).cloned().collect::<Vec<_>>();
        if !versions.is_empty() {
            facts.push(format!("Servers: {}", versions.join("; ")));
        }
        facts.push(format!("Measured: {}, {}", self.started(), self.program));
        facts.push(self.outcome());
        facts.extend(self.notes());
        let mut text = format!("# {}\n\n", self.plan.title);
        text.extend(about.into_iter().chain(published).map(|paragraph| format!("{paragraph}\n\n")));
        text.extend(facts.iter().map(|fact| format!("- {fact}\n")));
        for table in tables::all(self, usize::MAX) {
            text.push('\n');
            text.push_str(&table.to_markdown());
        }
        text
    }

    /// JSON; names and units are described in `docs/bench.md`.
    pub fn json(&self) -> String {
        json::text(self)
    }

    /// An HTML page that needs no other file.
    pub fn html(&self) -> String {
        html::page(self)
    }

    fn started(&self) -> String {
        timestamp(self.comparison.started)
    }

    /// Duration and reason of the end, in one sentence.
    fn outcome(&self) -> String {
        let Comparison { elapsed, rounds, ended, .. } = self.comparison;
        let precision = percent(self.plan.limits.precision);
        let measure = self.plan.measures[0].name();
        let why = match ended {
            Ended::Settled => format!("every ratio of {measure} is known to ± {precision}"),
            Ended::Rounds => {
                format!("not every ratio of {measure} is known to ± {precision}: no more rounds are allowed")
            }
            Ended::Time => format!("not every ratio of {measure} is known to ± {precision}: time is up"),
            Ended::Interrupted => "interrupted".to_owned(),
            Ended::Nothing => "nothing could be measured".to_owned(),
        };
        let rounds = if *rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
        format!("{rounds} in {}; {why}.", duration(*elapsed))
    }

    /// Notes about cells and targets without figures, or with figures of limited value.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (target, reason) in self.plan.targets.iter().zip(&self.missing) {
            notes.extend(reason.as_ref().map(|reason| format!("{} was left out: {reason}.", target.name)));
        }
        // Cells without figures have a note below their table.
        for cell in self.comparison.cells.iter().filter(|cell| cell.has_figures()) {
            let Some(failure) = &cell.failure else { continue };
            let name =
                format!("{}, {}", self.plan.targets[cell.target].name, self.plan.modes[cell.mode].name);
            let what = if cell.given_up { "was given up after some rounds" } else { "failed once or twice" };
            notes.push(format!("{name} {what}: {failure}."));
        }
        let few = self.comparison.cells.iter().map(|cell| cell.errors).sum::<u64>();
        if few > 0 {
            notes.push(format!("{few} operations failed in runs that count."));
        }
        notes.extend(tables::client_bound(self));
        notes
    }
}

#[cfg(test)]
mod tests;
