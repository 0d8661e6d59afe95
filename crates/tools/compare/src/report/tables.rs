//! The tables of a comparison: an overview of all cells, then each group with its ratios and intervals.

use brisk_report::Table;
use brisk_report::figures::{number, percent};

use super::Report;
use crate::{Cell, Ended, Estimate, Measure, baseline, ratio};

/// [`Measure::ServerBusy`] below which the server was waiting for the client.
const BUSY: f64 = 0.9;

/// Maximum number of cells below [`BUSY`] that are named.
const NAMED: usize = 4;

/// Width of a value and its ratio in columns.
const PAIR: usize = 34;

/// Width left for names and the number of runs.
const NAMES: usize = 30;

/// All tables, of at most `width` columns if possible.
pub(super) fn all(report: &Report<'_>, width: usize) -> Vec<Table> {
    let mut tables = overviews(report);
    let together = (width.saturating_sub(NAMES) / PAIR).clamp(1, 4);
    for group in groups(report) {
        for (part, measures) in report.plan.measures.chunks(together).enumerate() {
            tables.push(details(report, &group, measures, part));
        }
    }
    tables
}

/// Cells in one table, and its name.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) cells: Vec<usize>,
}

/// Groups of cells that are compared with each other: of one mode if they are compared with a target, of one target if
/// with a mode, all if with one cell.
pub(super) fn groups(report: &Report<'_>) -> Vec<Group> {
    let (plan, cells) = (report.plan, &report.comparison.cells);
    let of = |name: &str, wanted: &dyn Fn(&Cell) -> bool| Group {
        name: name.to_owned(),
        cells: (0..cells.len()).filter(|place| wanted(&cells[*place])).collect(),
    };
    let found: Vec<_> = match (plan.baseline.target, plan.baseline.mode) {
        (Some(_), Some(_)) => vec![of(&plan.title, &|_| true)],
        (None, Some(_)) => {
            let targets = plan.targets.iter().enumerate();
            targets.map(|(index, target)| of(&target.name, &|cell| cell.target == index)).collect()
        }
        _ => {
            let modes = plan.modes.iter().enumerate();
            modes.map(|(index, mode)| of(&mode.name, &|cell| cell.mode == index)).collect()
        }
    };
    let shown = |group: &Group| group.cells.iter().any(|place| is_there(report, &cells[*place]));
    found.into_iter().filter(shown).collect()
}

/// Whether the server of the cell was available.
fn is_there(report: &Report<'_>, cell: &Cell) -> bool {
    report.missing[cell.target].is_none()
}

/// The text in place of figures, and the reason for their absence; `None` for a cell with figures.
fn absence(report: &Report<'_>, cell: &Cell) -> Option<(&'static str, String)> {
    if cell.has_figures() {
        return None;
    }
    Some(match (&cell.failure, report.comparison.ended) {
        (Some(failure), _) if cell.given_up => ("failed", format!("given up, it failed twice: {failure}")),
        (Some(failure), _) => ("failed", failure.clone()),
        (None, Ended::Time) => ("not run", "time was up before its turn".to_owned()),
        (None, _) => ("not run", "the comparison ended before its turn".to_owned()),
    })
}

/// Name of a cell within its group.
pub(super) fn name(report: &Report<'_>, cell: &Cell) -> String {
    let (target, mode) = (&report.plan.targets[cell.target].name, &report.plan.modes[cell.mode].name);
    match (report.plan.baseline.target, report.plan.baseline.mode) {
        (Some(_), Some(_)) if report.plan.targets.len() > 1 => format!("{target}, {mode}"),
        (_, Some(_)) => mode.clone(),
        _ => target.clone(),
    }
}

/// One table per measure, targets side by side, if there are several targets and modes.
fn overviews(report: &Report<'_>) -> Vec<Table> {
    let (plan, cells) = (report.plan, &report.comparison.cells);
    let targets: Vec<_> =
        (0..plan.targets.len()).filter(|target| report.missing[*target].is_none()).collect();
    if targets.len() < 2 || plan.modes.len() < 2 {
        return Vec::new();
    }
    let overview = |measure: &Measure| {
        let names = targets.iter().map(|target| plan.targets[*target].name.as_str());
        let mut table = Table::new(format!("All: {}", measure.title())).text("").figures(names);
        for (index, mode) in plan.modes.iter().enumerate() {
            let value = |target: &usize| {
                let cell = cells.iter().find(|cell| cell.target == *target && cell.mode == index);
                let Some(cell) = cell else { return "–".to_owned() };
                let found = cell.value(*measure).map(|found| measure.show(found.median));
                found.unwrap_or_else(|| absence(report, cell).map_or("–", |(word, _)| word).to_owned())
            };
            table.row([mode.name.clone()].into_iter().chain(targets.iter().map(value)));
        }
        table
    };
    let mut measures = plan.measures.clone();
    if !measures.contains(&Measure::ServerBusy) && !client_bound_cells(report).is_empty() {
        // The reader has to see how far the rates are lower bounds.
        measures.push(Measure::ServerBusy);
    }
    // A server without a known process has no processor time and no memory.
    measures.retain(|measure| cells.iter().any(|cell| cell.value(*measure).is_some()));
    measures.iter().map(overview).collect()
}

fn details(report: &Report<'_>, group: &Group, measures: &[Measure], part: usize) -> Table {
    let cells = &report.comparison.cells;
    let continued = if part > 0 { " (continued)" } else { "" };
    let mut table = Table::new(format!("{}{continued}", group.name)).text("");
    // A mode that the baseline target does not have is not compared.
    let compared = group.cells.iter().any(|place| baseline(report.plan.baseline, cells, *place).is_some());
    for measure in measures {
        table = table.figure(measure.title());
        table = if compared { table.figure("ratio") } else { table.figure("interval") };
    }
    table = table.figure("runs");
    for place in group.cells.iter().copied().filter(|place| is_there(report, &cells[*place])) {
        let name = name(report, &cells[place]);
        let mut row = vec![name.clone()];
        if let Some((word, reason)) = absence(report, &cells[place]) {
            row.push(word.to_owned());
            row.resize(2 * measures.len() + 1, String::new());
            if part == 0 {
                table.note(format!("{name}: {reason}."));
            }
        } else {
            row.extend(measures.iter().flat_map(|measure| pair(report, place, *measure)));
        }
        row.push(cells[place].samples.iter().flatten().count().to_string());
        table.row(row);
    }
    table
}

/// The value of a cell, and its ratio or its interval.
fn pair(report: &Report<'_>, place: usize, measure: Measure) -> [String; 2] {
    let cells = &report.comparison.cells;
    let Some(value) = cells[place].value(measure) else { return ["–".to_owned(), String::new()] };
    let base = baseline(report.plan.baseline, cells, place);
    let beside = match base {
        Some(base) if base == place => "1".to_owned(),
        Some(base) => {
            ratio(cells, place, base, measure).map_or_else(String::new, |ratio| interval(&ratio, number))
        }
        None => range(&value, |value| measure.show(value)),
    };
    [measure.show(value.median), beside]
}

/// Formats `1.32 (1.30–1.35)`; with too few runs for such an interval, a question mark follows.
pub(super) fn interval(estimate: &Estimate, show: impl Fn(f64) -> String) -> String {
    let median = show(estimate.median);
    if estimate.count == 1 { format!("{median}?") } else { format!("{median} ({})", range(estimate, &show)) }
}

fn range(estimate: &Estimate, show: impl Fn(f64) -> String) -> String {
    let doubt = if estimate.is_confident() { "" } else { "?" };
    format!("{}–{}{doubt}", show(estimate.low), show(estimate.high))
}

/// A sentence about the cells in which the client was the limit, if there are any. Many are only counted: there is a
/// table of them.
pub(super) fn client_bound(report: &Report<'_>) -> Option<String> {
    let places = client_bound_cells(report);
    let name = |place: &usize| {
        let cell = &report.comparison.cells[*place];
        format!("{}, {}", report.plan.targets[cell.target].name, report.plan.modes[cell.mode].name)
    };
    let names = places.iter().map(name).collect::<Vec<_>>().join("; ");
    let names = if places.len() > NAMED { String::new() } else { format!(": {names}") };
    let cells = if places.len() == 1 { "one cell".to_owned() } else { format!("{} cells", places.len()) };
    let limit = percent(BUSY);
    let meaning = "the rate is a lower bound there, and only the processor time compares";
    (!places.is_empty())
        .then(|| format!("In {cells} the server was less than {limit} busy, so {meaning}{names}."))
}

fn client_bound_cells(report: &Report<'_>) -> Vec<usize> {
    let cells = &report.comparison.cells;
    let waited =
        |place: &usize| cells[*place].value(Measure::ServerBusy).is_some_and(|busy| busy.median < BUSY);
    (0..cells.len()).filter(waited).collect()
}
