//! The report: each directive of the input in exactly one class.

use std::collections::BTreeSet;
use std::fmt;

use crate::directive::Directive;

/// Difference of servers that are accepted with any certificate.
pub(crate) const UNVERIFIED: &str = "any certificate of the server is accepted, as before, so that an attacker in the network can take its place: \
                                     write ca = \"FILE\" in place of verify = false in [upstream.NAME.tls]";

/// Length of the joined differences of a directive, in bytes, from which no further one is added.
const LONGEST: usize = 1000;

/// Class of a directive, in rising order of its weight for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// brisk does this without a setting, or it has no meaning there; the reason.
    NotNeeded(String),
    /// The effect is the same.
    Carried,
    /// The effect differs in a detail; the detail.
    Difference(String),
    /// The effect is missing.
    NotCarried {
        /// Why it is missing.
        reason: String,
        /// Advice for the operator.
        action: String,
    },
}

impl Class {
    fn weight(&self) -> u8 {
        match self {
            Self::NotNeeded(_) => 0,
            Self::Carried => 1,
            Self::Difference(_) => 2,
            Self::NotCarried { .. } => 3,
        }
    }

    /// The class with texts of one line each.
    fn flat(&self) -> Self {
        match self {
            Self::NotNeeded(reason) => Self::NotNeeded(one_line(reason)),
            Self::Carried => Self::Carried,
            Self::Difference(detail) => Self::Difference(one_line(detail)),
            Self::NotCarried { reason, action } => {
                Self::NotCarried { reason: one_line(reason), action: one_line(action) }
            }
        }
    }

    /// Heading of the class in the report.
    fn heading(&self) -> &'static str {
        match self {
            Self::NotNeeded(_) => "Not needed",
            Self::Carried => "Carried over",
            Self::Difference(_) => "Carried with a difference",
            Self::NotCarried { .. } => "NOT carried",
        }
    }
}

/// A directive with its class.
#[derive(Clone, Debug)]
pub struct Entry {
    /// File and line.
    pub place: String,
    /// The directive as text, without its block.
    pub text: String,
    /// The class.
    pub class: Class,
}

/// Classes of all directives of an input.
#[derive(Debug)]
pub struct Report {
    entries: Vec<(Option<Class>, String, String)>,
    open: BTreeSet<usize>,
}

impl Report {
    /// A report about `count` directives, which has the places and texts of `directives` and of their blocks.
    pub(crate) fn new(count: usize, directives: &[Directive]) -> Self {
        let mut entries = vec![(None, String::new(), String::new()); count];
        gather(directives, &mut entries);
        Self { entries, open: BTreeSet::new() }
    }

    /// Notes the class of a directive. Of several notes, the one with the greatest weight remains; differences are joined.
    pub(crate) fn note(&mut self, id: usize, class: Class) {
        let Some((noted, _, _)) = self.entries.get_mut(id) else { return };
        if let (Some(Class::Difference(all)), Class::Difference(detail)) = (&mut *noted, &class) {
            if !all.contains(detail.as_str()) && all.len() < LONGEST {
                all.push_str("; ");
                all.push_str(detail);
            }
            return;
        }
        // Several passes note one directive. The heaviest class stays, so a defect is never hidden by a
        // success elsewhere.
        if noted.as_ref().is_none_or(|noted| noted.weight() < class.weight()) {
            *noted = Some(class);
        }
    }

    /// Notes the class of a directive and of all directives of its block.
    pub(crate) fn note_whole(&mut self, directive: &Directive, class: &Class) {
        self.note(directive.id, class.clone());
        for inner in directive.inner() {
            self.note_whole(inner, class);
        }
    }

    /// Notes that requests which the directive refuses are served.
    pub(crate) fn note_open(&mut self, id: usize) {
        self.open.insert(id);
    }

    /// Places of directives whose refusals are missing, so that requests are served which the other server refuses.
    #[must_use]
    pub fn open(&self) -> Vec<String> {
        self.open.iter().filter_map(|id| self.entries.get(*id)).map(|(_, place, _)| place.clone()).collect()
    }

    /// Whether the directive has a class.
    pub(crate) fn is_noted(&self, id: usize) -> bool {
        self.entries.get(id).is_none_or(|(noted, _, _)| noted.is_some())
    }

    /// Whether the directive is not carried.
    pub(crate) fn is_missing(&self, id: usize) -> bool {
        self.entries.get(id).is_some_and(|(noted, _, _)| matches!(noted, Some(Class::NotCarried { .. })))
    }

    /// All directives with their classes, in the order of the input.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.entries.iter().map(|(class, place, text)| {
            let unknown = || Class::NotCarried {
                reason: "the importer does not know the directive".to_owned(),
                action: "look for its purpose in docs/configuration.md".to_owned(),
            };
            let class = class.as_ref().map_or_else(unknown, Class::flat);
            Entry { place: place.clone(), text: text.clone(), class }
        })
    }

    /// Number of directives: not needed, carried over, carried with a difference, and not carried.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for entry in self.entries() {
            counts[usize::from(entry.class.weight())] += 1;
        }
        counts
    }
}

fn gather(directives: &[Directive], entries: &mut [(Option<Class>, String, String)]) {
    for directive in directives {
        let place = one_line(&format!("{}:{}", directive.place.file.display(), directive.place.line));
        if let Some(entry) = entries.get_mut(directive.id) {
            (entry.1, entry.2) = (place, shortened(&directive.text()));
        }
        gather(directive.inner(), entries);
    }
}

/// The text without control characters: names of files, and texts of the input, could end a comment of the output, or move the
/// cursor where the report is shown.
pub(crate) fn one_line(text: &str) -> String {
    let is_hidden = |next: char| next.is_control() || matches!(next, '\u{2028}' | '\u{2029}');
    text.chars().map(|next| if is_hidden(next) { ' ' } else { next }).collect()
}

/// Writes a warning as the first line of each file, if they serve requests that the other server refuses.
pub(crate) fn warn(server: &str, report: &Report, files: &mut [String]) {
    let open = report.open();
    if open.is_empty() {
        return;
    }
    let places = one_line(&open.join(", "));
    let warning = format!(
        "# WARNING: {server} refuses requests that this configuration serves, see the report: {places}\n"
    );
    for text in files {
        text.insert_str(0, &warning);
    }
}

/// The first 120 characters, without line breaks.
fn shortened(text: &str) -> String {
    let flat = one_line(text);
    match flat.char_indices().nth(120) {
        Some((end, _)) => format!("{}...", &flat[..end]),
        None => flat,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [unneeded, carried, different, missing] = self.counts();
        writeln!(
            formatter,
            "{} directives: {carried} carried over, {unneeded} not needed, {different} carried with a difference, {missing} NOT carried",
            self.entries.len()
        )?;
        let mut entries: Vec<_> = self.entries().collect();
        // The sort is stable: the directives of a class stay in the order of the input.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.class.weight()));
        let mut last = "";
        for Entry { place, text, class } in entries {
            if class.heading() != last {
                last = class.heading();
                writeln!(formatter, "\n## {last}\n")?;
            }
            match class {
                Class::Carried => writeln!(formatter, "{place}: {text}")?,
                Class::NotNeeded(reason) | Class::Difference(reason) => {
                    writeln!(formatter, "{place}: {text}\n    {reason}")?;
                }
                Class::NotCarried { reason, action } => {
                    writeln!(formatter, "{place}: {text}\n    {reason}; {action}")?;
                }
            }
        }
        Ok(())
    }
}
