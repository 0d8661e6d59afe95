//! Values of headers with variables.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use brisk_net::Networks;
use http::HeaderValue;
use regex::bytes::Captures;

use crate::map_pattern::MapPattern;
use crate::pattern::GroupPattern;
use crate::variable::Variable;

/// Maximum length of a value in bytes. A longer value is cut off.
const LONGEST: usize = 16 << 10;

/// The value of a header: text, with variables in braces such as `{client.address}`.
///
/// A brace begins a variable if a lower-case letter follows; `{{` is a brace. The values of variables cannot end a header or
/// begin another: bytes other than visible ASCII characters and spaces are percent-encoded.
#[derive(Clone, Debug, Default)]
pub struct Template(Box<[Part]>);

/// A piece of a template.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Text outside of braces.
    Text(Box<str>),
    /// A variable.
    Variable(Variable),
    /// A variable whose value a table selects.
    Map(Arc<Map>),
}

/// A table from one value to another.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The value to look up.
    pub from: Template,
    /// Results by exact value.
    pub values: BTreeMap<String, Outcome>,
    /// Results by the network of an address, if no exact value is equal.
    pub networks: Networks<Outcome>,
    /// Results of expressions, which are tried in this order if there is no other result.
    pub patterns: Vec<MapPattern>,
    /// Result for all other values.
    pub default: Outcome,
}

/// A result of a table without groups.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A text, in which a brace begins no variable.
    Text(Box<str>),
    /// A text with variables.
    Formed(Template),
}

/// Tables by their names.
pub type Maps = BTreeMap<String, Arc<Map>>;

/// Source of the values of variables.
pub trait Values {
    /// Appends the value of `variable`; nothing if there is none.
    fn append(&self, variable: &Variable, out: &mut Vec<u8>);
}

/// No variable has a value.
impl Values for () {
    fn append(&self, _: &Variable, _: &mut Vec<u8>) {}
}

/// A template whose variables have their values, except for those that only a response has.
#[derive(Clone, Debug, Default)]
pub struct Filled {
    text: Vec<u8>,
    /// Values of the response with their places in `text`, in ascending order.
    late: Vec<(usize, Late)>,
}

/// A value that is known with the response.
#[derive(Clone, Debug)]
enum Late {
    Variable(Variable),
    Map(Arc<Map>),
}

impl Template {
    /// Reads a template. Tables come from `maps`.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn new(text: &str, maps: &Maps) -> Result<Self, String> {
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || text.trim() != text {
            return Err(format!(
                "{text:?} is not the value of a header: write ASCII without line breaks, and no spaces around it"
            ));
        }
        parse(text, begins_variable, |name| part(name, maps)).map(|parts| Self(parts.into()))
    }

    /// The value, if the template has no variables.
    pub fn fixed(&self) -> Option<HeaderValue> {
        match &*self.0 {
            [] => HeaderValue::from_str("").ok(),
            [Part::Text(text)] => HeaderValue::from_str(text).ok(),
            _ => None,
        }
    }

    /// Whether the value depends on the response.
    pub fn needs_response(&self) -> bool {
        self.0.iter().any(Part::needs_response)
    }

    /// Whether the value depends on the request.
    pub fn needs_request(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, Part::Text(_)) && !part.needs_response())
    }

    /// Whether the template has a variable; those of tables do not count.
    pub fn has(&self, variable: &Variable) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Variable(own) if own == variable))
    }

    /// Whether the template, or a table that it refers to, has a variable.
    pub fn reaches(&self, variable: &Variable) -> bool {
        let (mut templates, mut known) = (vec![self], BTreeSet::new());
        while let Some(template) = templates.pop() {
            if template.has(variable) {
                return true;
            }
            for part in &template.0 {
                // Once for each table, to which many results may refer.
                if let Part::Map(map) = part
                    && known.insert(Arc::as_ptr(map))
                {
                    templates.push(&map.from);
                    templates.extend(map.outcomes().filter_map(Outcome::template));
                }
            }
        }
        false
    }

    /// Fills in the values of a request. The text is cut off at 16 KiB, the length of a header, so that it holds no more
    /// memory.
    pub fn fill(&self, values: &impl Values) -> Filled {
        let mut filled = Filled::default();
        self.append(values, &mut filled);
        filled.text.truncate(LONGEST);
        // The value waits for the response, so spare capacity would be held as long.
        filled.text.shrink_to_fit();
        filled.late.retain(|(place, _)| *place <= LONGEST);
        filled
    }

    /// The text with all values of a request, or of a response, cut off as by [`Self::fill`].
    fn text(&self, values: &impl Values) -> Vec<u8> {
        let mut filled = Filled::default();
        self.append(values, &mut filled);
        filled.insert(values);
        filled.text.truncate(LONGEST);
        filled.text
    }

    fn append(&self, values: &impl Values, filled: &mut Filled) {
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.text.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) if variable.is_of_response() => {
                    filled.late.push((filled.text.len(), Late::Variable(variable.clone())));
                }
                Part::Map(map) if map.from.needs_response() => {
                    filled.late.push((filled.text.len(), Late::Map(Arc::clone(map))));
                }
                Part::Variable(variable) => values.append(variable, &mut filled.text),
                Part::Map(map) => filled.text.extend_from_slice(&map.find(values)),
            }
        }
    }
}

impl Filled {
    /// Bytes that the value holds.
    pub fn size(&self) -> usize {
        self.text.len() + self.late.len() * size_of::<(usize, Late)>()
    }

    /// The text, without the values of a response.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }

    /// The header; `None` if the value is empty. `response` has the values of the response.
    pub fn header(mut self, response: &impl Values) -> Option<HeaderValue> {
        self.insert(response);
        let mut safe = Vec::with_capacity(self.text.len());
        for byte in self.text {
            match byte {
                b' '..=b'~' => safe.push(byte),
                other => safe.extend_from_slice(format!("%{other:02X}").as_bytes()),
            }
            if safe.len() >= LONGEST {
                break;
            }
        }
        let value = HeaderValue::from_bytes(safe.trim_ascii()).ok()?;
        (!value.is_empty()).then_some(value)
    }
}

impl Filled {
    /// Inserts the values of a response.
    fn insert(&mut self, response: &impl Values) {
        // From the end, so that the places of earlier values stay right.
        for (place, late) in std::mem::take(&mut self.late).into_iter().rev() {
            let mut value = Vec::new();
            match &late {
                Late::Variable(variable) => response.append(variable, &mut value),
                Late::Map(map) => value.extend_from_slice(&map.find(response)),
            }
            value.truncate(LONGEST);
            self.text.splice(place..place, value);
        }
    }
}

impl Part {
    pub(crate) fn needs_response(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Variable(variable) => variable.is_of_response(),
            Self::Map(map) => map.from.needs_response(),
        }
    }
}

impl Map {
    /// The result for the value of a request, or of a response if `from` has one.
    pub(crate) fn find(&self, values: &impl Values) -> Cow<'_, [u8]> {
        let mut key = Filled::default();
        self.from.append(values, &mut key);
        key.insert(values);
        let key = key.text;
        let text = std::str::from_utf8(&key).ok();
        let network = || {
            let address: IpAddr = text.filter(|_| !self.networks.is_empty())?.parse().ok()?;
            self.networks.get(address)
        };
        if let Some(outcome) = text.and_then(|text| self.values.get(text)).or_else(network) {
            return outcome.text(values);
        }
        let matching = self.patterns.iter().find_map(|pattern| pattern.result(&key, values));
        matching.unwrap_or_else(|| self.default.text(values))
    }

    /// All results without groups.
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let of_patterns = self.patterns.iter().filter_map(MapPattern::outcome);
        self.values.values().chain(self.networks.values()).chain(of_patterns).chain([&self.default])
    }

    /// Whether a result has variables.
    pub(crate) fn has_variables(&self) -> bool {
        self.outcomes().any(|outcome| outcome.template().is_some())
    }

    /// Whether a result contains text of the value that is looked up.
    pub(crate) fn has_groups(&self) -> bool {
        self.patterns.iter().any(MapPattern::has_groups)
    }
}

impl Outcome {
    /// The text, with the values of its variables.
    pub(crate) fn text(&self, values: &impl Values) -> Cow<'_, [u8]> {
        match self {
            Self::Text(text) => text.as_bytes().into(),
            Self::Formed(template) => template.text(values).into(),
        }
    }

    fn template(&self) -> Option<&Template> {
        match self {
            Self::Text(_) => None,
            Self::Formed(template) => Some(template),
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self::from("")
    }
}

impl From<&str> for Outcome {
    /// A text without variables.
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Whether a brace before this character begins a variable.
fn begins_variable(first: char) -> bool {
    first.is_ascii_lowercase()
}

/// Splits `text` into literal text and variables, which `part` reads from their names. A brace begins a variable if the next
/// character does, according to `begins`.
fn parse(
    text: &str,
    begins: fn(char) -> bool,
    part: impl Fn(&str) -> Result<Part, String>,
) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('{') {
            literal.push('{');
            rest = after;
        } else if after.starts_with(begins) {
            let wrong =
                || format!("\"{{{after}\" has no closing brace; write \"{{{{\" for a brace before a letter");
            let (name, after) = after.split_once('}').ok_or_else(wrong)?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal).into()));
            }
            parts.push(part(name)?);
            rest = after;
        } else {
            literal.push('{');
            rest = after;
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal.into()));
    }
    Ok(parts)
}

fn part(name: &str, maps: &Maps) -> Result<Part, String> {
    let Some(map) = name.strip_prefix("map.") else { return name.parse().map(Part::Variable) };
    let unknown = || {
        let known: Vec<_> = maps.keys().map(|name| format!("[map.{name}]")).collect();
        let known = if known.is_empty() {
            "no table is defined".to_owned()
        } else {
            format!("defined: {}", known.join(", "))
        };
        format!("there is no table [map.{map}]; {known}")
    };
    maps.get(map).cloned().map(Part::Map).ok_or_else(unknown)
}

/// Splits `text` into literal text and variables, as in a [`Template`], with the names of `own`, and with `{1}` or `{name}` for the
/// groups of `expression`.
pub(crate) fn parse_with_groups(
    text: &str,
    own: &[(&str, Variable)],
    maps: &Maps,
    expression: Option<&GroupPattern>,
) -> Result<Vec<Part>, String> {
    let begins = |first: char| begins_variable(first) || first.is_ascii_digit();
    parse(text, begins, |name| {
        if let Some((_, variable)) = own.iter().find(|(own, _)| *own == name) {
            return Ok(Part::Variable(variable.clone()));
        }
        match expression.and_then(|expression| expression.group(name)) {
            Some(number) => Ok(Part::Variable(Variable::Group(number))),
            None if name.starts_with(|first: char| first.is_ascii_digit()) => Err(format!(
                "{{{name}}} is the text of a group: write one into `when.path_regex`, as \"^/old/(.*)$\""
            )),
            None => part(name, maps),
        }
    })
}

/// The value of a [`Variable`], which may be a [group](Variable::Group) of the path.
pub(crate) fn value_of(variable: &Variable, values: &impl Values, groups: Option<&Captures<'_>>) -> Vec<u8> {
    let mut value = Vec::new();
    if let (Variable::Group(number), Some(groups)) = (variable, groups) {
        value.extend_from_slice(groups.get(*number).map_or(&b""[..], |text| text.as_bytes()));
    } else {
        values.append(variable, &mut value);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    /// The value of each variable is its name, except for one header.
    struct Named(&'static [u8]);

    impl Values for Named {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            match variable {
                Variable::Header(_) => out.extend_from_slice(self.0),
                other => out.extend_from_slice(format!("{other:?}").as_bytes()),
            }
        }
    }

    /// The values of a response.
    struct Server;

    impl Values for Server {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            match variable {
                Variable::Upstream => out.extend_from_slice(b"10.0.0.1:80"),
                Variable::ResponseStatus => out.extend_from_slice(b"503"),
                _ => {}
            }
        }
    }

    fn value(text: &str, header: &'static [u8]) -> Option<String> {
        let template = Template::new(text, &Maps::new()).expect(text);
        let value = template.fill(&Named(header)).header(&Server)?;
        Some(value.to_str().expect("ASCII").to_owned())
    }

    #[test]
    fn variables_stand_between_text() {
        for (text, expected) in [
            ("{client.address}", "ClientAddress"),
            ("a {request.method} b {request.path}", "a Method b Path"),
            ("{upstream.address}, {upstream.address}!", "10.0.0.1:80, 10.0.0.1:80!"),
            (r#"{"group":"a","x":{}}"#, r#"{"group":"a","x":{}}"#),
            ("{{client.address}", "{client.address}"),
            ("a{", "a{"),
        ] {
            assert_eq!(value(text, b"").as_deref(), Some(expected), "{text}");
        }
        assert_eq!(Template::new("a{{b", &Maps::new()).expect("text").fixed().expect("fixed"), "a{b");
        assert!(Template::new("{client.address}", &Maps::new()).expect("a variable").fixed().is_none());
    }

    #[test]
    fn no_value_ends_a_header() {
        for (header, expected) in [
            (&b"a\r\nset-cookie: b"[..], "x=a%0D%0Aset-cookie: b"),
            ("\u{202e}\u{0}\u{7f}".as_bytes(), "x=%E2%80%AE%00%7F"),
            (b"\t a ", "x=%09 a"),
        ] {
            assert_eq!(value("x={request.header.a}", header).as_deref(), Some(expected), "{header:?}");
        }
        assert_eq!(value("{request.header.a}", b" "), None, "an empty header is not sent");
        let long: &[u8] = Box::leak(vec![b'\n'; 2 * LONGEST].into());
        let template =
            Template::new("{request.header.a}{upstream.address}", &Maps::new()).expect("a template");
        assert_eq!(template.fill(&Named(long)).size(), LONGEST, "no more is held");
        assert!(value("{request.header.a}", long).is_some_and(|value| value.len() <= LONGEST + 2));
    }

    #[test]
    fn a_table_goes_by_value_then_by_expression() {
        let none = Maps::new();
        let pattern = |text: &str, value: &str| {
            MapPattern::fixed(Pattern::new(text).expect("an expression"), value.into())
        };
        let map = Map {
            from: Template::new("{request.header.a}", &none).expect("a template"),
            values: BTreeMap::from([("de".to_owned(), "1".into())]),
            patterns: vec![pattern("^d", "2"), pattern(".", "3")],
            default: "4".into(),
            ..Map::default()
        };
        let maps = Maps::from([("m".to_owned(), Arc::new(map))]);
        let template = Template::new("v{map.m}", &maps).expect("a template");
        for (header, expected) in [(&b"de"[..], "v1"), (b"da", "v2"), (b"\xff", "v3"), (b"", "v4")] {
            assert_eq!(template.fill(&Named(header)).header(&Server).expect("a value"), expected);
        }
    }

    #[test]
    fn a_result_has_variables_and_other_tables_but_text_of_clients_has_none() {
        let none = Maps::new();
        let template = |text: &str, maps: &Maps| Template::new(text, maps).expect(text);
        let inner = Map {
            from: template("{request.header.a}", &none),
            // A text is no template, also one with the text of another result.
            values: BTreeMap::from([("de".to_owned(), "{request.method}".into())]),
            default: Outcome::Formed(template("{request.method}", &none)),
            ..Map::default()
        };
        let maps = Maps::from([("inner".to_owned(), Arc::new(inner))]);
        let groups = MapPattern::formed(GroupPattern::new("^x(.*)$").expect("an expression"), "{1}");
        let outer = Map {
            from: template("{request.header.a}", &none),
            patterns: vec![groups.expect("a group")],
            default: Outcome::Formed(template("<{map.inner}>", &maps)),
            ..Map::default()
        };
        let maps = Maps::from([("outer".to_owned(), Arc::new(outer))]);
        let template = template("{map.outer}", &maps);
        for (header, expected) in
            [(&b"de"[..], "<{request.method}>"), (b"a", "<Method>"), (b"x<{map.inner}>", "<{map.inner}>")]
        {
            assert_eq!(template.fill(&Named(header)).header(&Server).expect("a value"), expected);
        }
        assert!(template.reaches(&Variable::Method) && !template.reaches(&Variable::User));
    }

    #[test]
    fn an_address_that_is_looked_up_has_the_result_of_its_network() {
        let mut networks = Networks::default();
        networks.insert("10.0.0.0/8".parse().expect("a network"), "a".into());
        let from = Template::new("{request.header.a}", &Maps::new()).expect("a template");
        let map = Map { from, networks, default: "b".into(), ..Map::default() };
        for (header, expected) in [
            (&b"10.1.2.3"[..], "a"),
            (b"::ffff:10.1.2.3", "a"),
            (b"192.0.2.1", "b"),
            (b"10.1.2.3:80", "b"),
            (b"", "b"),
        ] {
            assert_eq!(*map.find(&Named(header)), *expected.as_bytes(), "{header:?}");
        }
    }

    #[test]
    fn a_table_of_the_response_is_looked_up_with_the_response() {
        let map = Map {
            from: Template::new("{response.status}", &Maps::new()).expect("a template"),
            values: BTreeMap::from([("503".to_owned(), "down".into())]),
            ..Map::default()
        };
        let maps = Maps::from([("m".to_owned(), Arc::new(map))]);
        let template =
            Template::new("{request.method}: {map.m} {response.status}", &maps).expect("a template");
        assert!(template.needs_response() && template.needs_request());
        assert_eq!(template.fill(&Named(b"")).header(&Server).expect("a value"), "Method: down 503");
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_correction() {
        for (text, reason) in [
            ("{client.adress}", "did you mean {client.address}?"),
            ("{request.header.}", "a name"),
            ("{map.x}", "there is no table [map.x]; no table is defined"),
            ("{client.address", "has no closing brace"),
            ("a\nb", "without line breaks"),
            ("ü", "write ASCII"),
        ] {
            let error = Template::new(text, &Maps::new()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
