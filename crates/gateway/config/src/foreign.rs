//! Terms of nginx, HAProxy, Caddy and Traefik, with the keys that replace them: advice in errors about unknown keys, and about files
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
        // Parsed at each use instead of once: both callers report an error, so the list costs nothing while
        // the gateway serves.
        TERMS.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let mut columns = line.split(" | ");
            let mut column = || columns.next().map(str::trim);
            let (program, terms, examples) = (column(), column(), column());
            let examples = examples.into_iter().flat_map(|examples| examples.split(" & "));
            Self {
                program: program.unwrap_or_default(),
                terms: terms.unwrap_or_default(),
                examples: examples
                    // An example may contain brackets of its own, as `https = ["..."]` does. The first `] `
                    // ends the section.
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

/// The first line, from 1, in the syntax of another program or format, and the message about it. `text` must not be valid TOML.
pub(crate) fn syntax(text: &str) -> Option<(usize, String)> {
    if let Some((number, (format, advice))) = data_of(text) {
        let message =
            format!("this is {format}, but brisk reads TOML: {advice}; docs/configuration.md has all keys");
        return Some((number, message));
    }
    let (number, program) =
        text.lines().zip(1..).find_map(|(line, number)| Some((number, program_of(line.trim())?)))?;
    let message = format!(
        "this is the syntax of {program}, but brisk reads TOML: docs/configuration.md has an example and all keys; brisk names \
         the counterpart of a key of {program} in its messages"
    );
    Some((number, message))
}

/// The format of a file that begins as JSON or YAML, with the same in TOML, and the number of its first line. Later lines
/// prove nothing: those of a text or list of TOML may look alike.
fn data_of(text: &str) -> Option<(usize, (&'static str, &'static str))> {
    let lines = text.lines().map(str::trim).zip(1..);
    // The first line with content decides. `---`, the start of a document in YAML, is no content.
    let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#') && *line != "---");
    let (line, number) = lines.next()?;
    // A Caddyfile may begin with a brace too, but not with a quotation mark behind it.
    let inner = line.strip_prefix('{').map(str::trim_start);
    let inner =
        inner.map(|rest| if rest.is_empty() { lines.next().map_or("", |(line, _)| line) } else { rest });
    if inner.is_some_and(|inner| inner.starts_with(['"', '}'])) {
        let advice =
            "[server] and [[host]] begin sections, and a key is written as https = [\"0.0.0.0:443\"]";
        return Some((number, ("JSON", advice)));
    }
    let (key, value) = line.split_once(':')?;
    let is_key =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let is_entry = is_key && (value.is_empty() || value.starts_with(' ')) && !value.ends_with(['{', ';']);
    is_entry.then_some((
        number,
        (
            "YAML",
            "`server:` is written as [server], `hosts:` with a list as [[host]] for each host, and `key: text` as key = \"text\"",
        ),
    ))
}

/// The program in whose files `line` occurs, but which is no line of TOML.
fn program_of(line: &str) -> Option<&'static str> {
    let mut words = line.split([' ', '\t', ';', '{']).filter(|word| !word.is_empty());
    let first = words.next()?;
    // In TOML, a line with a value has "=", and a line with a section begins with a bracket.
    if line.contains('=') || line.starts_with(['[', '#', '"']) {
        return None;
    }
    // Words such as `server` are in more than one program. The brace or the semicolon at the end of the line
    // makes the difference.
    let opens = line.ends_with('{');
    let is_term = |program: &str| Entry::all().any(|entry| entry.program == program && entry.has(first));
    if (opens && matches!(first, "server" | "upstream" | "if"))
        || ((opens || line.ends_with(';')) && is_term("nginx"))
    {
        return Some("nginx");
    }
    // A section of HAProxy has at most a name behind its first word, so a sentence that begins with `listen`
    // is none.
    if matches!(first, "frontend" | "backend" | "listen" | "defaults" | "global") && words.count() <= 1 {
        return Some("HAProxy");
    }
    (is_term("Caddy") || (opens && first.contains(['.', ':']))).then_some("Caddy")
}
