//! Terms of nginx, HAProxy and Caddy, with the keys that replace them: advice in errors about unknown keys, and about files
//! in the syntax of these programs.

/// One entry per line: program, terms, examples with their sections, and a remark, which may be missing.
const TERMS: &str = include_str!("foreign.txt");

/// Terms of another program and their counterpart.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    program: &'static str,
    terms: &'static str,
    /// Sections of a file, each with a key in it. Empty if only the remark applies.
    pub(crate) examples: Vec<(&'static str, &'static str)>,
    pub(crate) remark: Option<&'static str>,
}

impl Entry {
    /// All entries of the list.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        TERMS.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut columns = line.split(" | ");
            let mut column = || columns.next().map(str::trim);
            let (program, terms, examples) = (column(), column(), column());
            let examples = examples.into_iter().flat_map(|examples| examples.split(" & "));
            Self {
                program: program.unwrap_or_default(),
                terms: terms.unwrap_or_default(),
                examples: examples
                    .filter_map(|example| example.split_at_checked(example.find("] ")? + 1))
                    .collect(),
                remark: column(),
            }
        })
    }

    fn has(&self, term: &str) -> bool {
        self.terms.split(' ').any(|own| own == term)
    }
}

/// Advice about a key that is unknown at its place but is a term of another program.
pub(crate) fn advice(key: &str) -> Option<String> {
    let Entry { program, examples, remark, .. } = Entry::all().find(|entry| entry.has(key))?;
    let examples: Vec<_> =
        examples.iter().map(|(section, example)| format!("{} in {section}", example.trim_start())).collect();
    let advice = match (examples.is_empty(), remark) {
        (true, remark) => remark.unwrap_or_default().to_owned(),
        (false, None) => format!("write {}", examples.join(", and ")),
        (false, Some(remark)) => format!("write {} ({remark})", examples.join(", and ")),
    };
    Some(format!("`{key}` is a term of {program}: {advice}"))
}

/// The first line, from 1, in the syntax of another program, and the message about it. `text` must not be valid TOML.
pub(crate) fn syntax(text: &str) -> Option<(usize, String)> {
    let (number, program) =
        text.lines().zip(1..).find_map(|(line, number)| Some((number, program_of(line.trim())?)))?;
    let message = format!(
        "this is the syntax of {program}, but brisk reads TOML: docs/configuration.md has an example and all keys; brisk names \
         the counterpart of a key of {program} in its messages"
    );
    Some((number, message))
}

/// The program in whose files `line` occurs, but which is no line of TOML.
fn program_of(line: &str) -> Option<&'static str> {
    let mut words = line.split([' ', '\t', ';', '{']).filter(|word| !word.is_empty());
    let first = words.next()?;
    // In TOML, a line with a value has "=", and a line with a section begins with a bracket.
    if line.contains('=') || line.starts_with(['[', '#', '"']) {
        return None;
    }
    let opens = line.ends_with('{');
    let is_term = |program: &str| Entry::all().any(|entry| entry.program == program && entry.has(first));
    if (opens && matches!(first, "server" | "upstream" | "if"))
        || ((opens || line.ends_with(';')) && is_term("nginx"))
    {
        return Some("nginx");
    }
    if matches!(first, "frontend" | "backend" | "listen" | "defaults" | "global") && words.count() <= 1 {
        return Some("HAProxy");
    }
    (is_term("Caddy") || (opens && first.contains(['.', ':']))).then_some("Caddy")
}
