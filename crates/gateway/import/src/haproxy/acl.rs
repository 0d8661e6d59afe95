//! Conditions of rules: `acl` lines, anonymous tests such as `{ path_beg /api }`, and the words `!` and `or` between them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::formula::Formula;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::sample::Sample;

/// Patterns of one test at most, with the lines of its `-f` files.
pub(crate) const MOST_PATTERNS: usize = 100_000;

/// Reader of the conditions of one `frontend`, `backend` or `listen`: `of_rule` gives the `Formula` of a rule.
#[derive(Debug)]
pub(crate) struct Conditions<'c, 'a> {
    pub(crate) context: &'c Context<'a>,
    pub(crate) proxy: &'c Proxy<'a>,
    acls: BTreeMap<&'a str, Vec<&'a Directive>>,
    /// Each `Formula` by the name that rules use, so that `named` reads an `acl` once.
    known: RefCell<BTreeMap<String, Formula>>,
    /// Whether the condition of a rule that tracks a counter is read.
    pub(crate) is_tracking: Cell<bool>,
    /// Samples of variables that are set once and without a condition.
    variables: BTreeMap<String, Option<Sample>>,
}

impl<'c, 'a> Conditions<'c, 'a> {
    /// Gathers the `acl` lines and the `set-var` variables of a proxy. `outer` has the variables of its `frontend`.
    pub(crate) fn new(context: &'c Context<'a>, proxy: &'c Proxy<'a>, outer: Option<&Self>) -> Self {
        let mut acls: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for line in proxy.all("acl") {
            acls.entry(line.args.first().map_or("", String::as_str)).or_default().push(line);
        }
        let mut variables = outer.map(|outer| outer.variables.clone()).unwrap_or_default();
        for line in proxy.lines().filter(|line| matches!(&*line.name, "http-request" | "tcp-request")) {
            let Some(at) = line.args.iter().position(|arg| arg.starts_with("set-var")) else { continue };
            let Some(name) = line.arg(at).split_once('(').and_then(|(_, name)| name.strip_suffix(')')) else {
                continue;
            };
            let name = name.split(',').next().unwrap_or(name).to_owned();
            let is_plain = line.args.len() == at + 2 && line.arg(at).starts_with("set-var(");
            let sample =
                Sample::read(line.arg(at + 1)).filter(|_| is_plain && !variables.contains_key(&name));
            // A variable of a variable would need the order of both.
            let sample = sample.filter(|sample| sample.name() != "var");
            variables.insert(name, sample);
        }
        Self { context, proxy, acls, known: RefCell::default(), is_tracking: Cell::default(), variables }
    }

    /// The sample with the value of a variable in place of `var(NAME)`: after `set-var(txn.h) hdr(host)`, the sample
    /// `var(txn.h),lower` is `hdr(host),lower`.
    pub(crate) fn resolved(&self, sample: Sample) -> Result<Sample, String> {
        if sample.name() != "var" {
            return Ok(sample);
        }
        let name = sample.fetch.arg(0).to_owned();
        let Some(Some(value)) = self.variables.get(&name) else {
            return Err(format!("the value of the variable {name} depends on rules"));
        };
        let mut value = value.clone();
        value.converters.extend(sample.converters);
        Ok(value)
    }

    /// The condition behind `if` or `unless` of a rule, and the words before it: `deny` for `deny if { path /a }`.
    pub(crate) fn of_rule<'d>(&self, args: &'d [String]) -> (&'d [String], Formula) {
        // An `if` between braces is a pattern of an anonymous test.
        let mut depth = 0_usize;
        let at = args.iter().position(|arg| {
            match arg.as_str() {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && matches!(arg.as_str(), "if" | "unless")
        });
        match at {
            None => (args, Formula::True),
            Some(at) => {
                let formula = self.condition(&args[at + 1..]);
                (&args[..at], if args[at] == "unless" { formula.not() } else { formula })
            }
        }
    }

    /// A condition: names and anonymous tests, of which all between `or` have to hold. `a !b or c` is `c`, or `a` without `b`.
    fn condition(&self, words: &[String]) -> Formula {
        let (mut any, mut all) = (Vec::new(), Vec::new());
        let mut rest = words.iter().peekable();
        let mut negated = false;
        while let Some(word) = rest.next() {
            let mut word = word.as_str();
            while let Some(inner) = word.strip_prefix('!') {
                negated = !negated;
                word = inner;
            }
            let part = match word {
                "" => continue,
                "or" | "||" | "OR" => {
                    any.push(joined(std::mem::take(&mut all)));
                    continue;
                }
                "{" => {
                    let inner: Vec<_> = rest.by_ref().take_while(|word| *word != "}").cloned().collect();
                    self.expression(&inner)
                }
                name => self.named(name),
            };
            all.push(if std::mem::take(&mut negated) { part.not() } else { part });
        }
        any.push(joined(all));
        Formula::any(any).merged()
    }

    /// The condition of a name: one of its `acl` lines has to hold. Without lines, `predefined` has names such as `METH_GET`.
    fn named(&self, name: &str) -> Formula {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        // Lines of the proxy come first: they may replace a predefined name.
        let formula = match self.acls.get(name) {
            Some(lines) => Formula::any(lines.iter().map(|line| {
                let formula = self.expression(line.args.get(1..).unwrap_or_default());
                self.note(line, &formula);
                formula
            }))
            .merged(),
            None => predefined(name).map_or_else(
                || Formula::unknown(format!("there is no acl {name}")),
                |words| {
                    let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
                    self.expression(&words)
                },
            ),
        };
        self.known.borrow_mut().insert(name.to_owned(), formula.clone());
        formula
    }

    /// Notes whether an `acl` has a counterpart: a `Formula::Unknown` in it is `missing` in the report.
    fn note(&self, line: &Directive, formula: &Formula) {
        self.context.carried(line);
        formula.each(&mut |part| {
            if let Formula::Unknown(_, reason) = part {
                let action = "the rules that use it name their effect";
                self.context.missing(line, reason.clone(), action);
            }
        });
    }

    /// Notes the `acl` lines that no rule has used as `unneeded`.
    pub(crate) fn note_unused(&self) {
        for line in self.acls.values().flatten() {
            if !self.context.report.borrow().is_noted(line.id) {
                self.context.unneeded(line, "no rule of the result uses it");
            }
        }
    }

    /// A test: a sample, flags, and patterns of which one has to match. For `path_beg -i /a /b`, the sample is `path_beg`, and
    /// the patterns are `/a` and `/b`; `-f` reads patterns from a file.
    fn expression(&self, words: &[String]) -> Formula {
        let Some((criterion, rest)) = words.split_first() else {
            return Formula::unknown("the test is empty");
        };
        let mut flags = Flags::default();
        let mut rest = rest.iter();
        let mut patterns: Vec<String> = Vec::new();
        let mut is_map = false;
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-i" => flags.ignore_case = true,
                "-n" => {}
                // Lines of the files have a value behind the pattern.
                "-M" => is_map = true,
                "-u" => drop(rest.next()),
                "-m" => flags.method = rest.next().cloned(),
                "-f" => {
                    let name = rest.next().map_or("", String::as_str);
                    match self.list(name, is_map) {
                        Ok(lines) => patterns.extend(lines),
                        Err(reason) => return Formula::unknown(reason),
                    }
                }
                "--" => {
                    patterns.extend(rest.by_ref().cloned());
                }
                // Behind the first pattern, a word with a hyphen is a pattern too.
                word if word.starts_with('-') && patterns.is_empty() && word.len() == 2 => {
                    return Formula::unknown(format!("the flag {word} has no counterpart"));
                }
                word => patterns.push(word.to_owned()),
            }
        }
        if patterns.len() > MOST_PATTERNS {
            return Formula::unknown("the list is too long");
        }
        if patterns.iter().any(|pattern| crate::haproxy::grammar::has_variable(pattern)) {
            return Formula::unknown("the pattern depends on the environment");
        }
        self.test(criterion, &flags, &patterns)
    }

    /// The patterns of a file, of which each test has a copy.
    fn list(&self, name: &str, is_map: bool) -> Result<Vec<String>, String> {
        let lines = self.context.files.borrow_mut().lines(name)?;
        let bytes: usize = if self.context.step(lines.len()) {
            lines.iter().map(|line| line.len() + 64).sum()
        } else {
            usize::MAX
        };
        if lines.len() > MOST_PATTERNS || !self.context.copied(bytes) {
            return Err("the lists of all tests together are too long".to_owned());
        }
        let first = |line: &String| if is_map { entry(line).0.to_owned() } else { line.clone() };
        Ok(lines.iter().map(first).collect())
    }

    /// Names of the proxies whose tables the proxy can use.
    pub(crate) fn stick_table(&self, name: &str) -> Option<&'a Directive> {
        if name.is_empty() {
            return self.proxy.one("stick-table", "");
        }
        self.context.table_of(name)?.one("stick-table", "")
    }
}

/// The pattern and the value of a line of a map.
pub(crate) fn entry(line: &str) -> (&str, &str) {
    let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    (key, value.trim())
}

/// All of the tests between two `or`. HAProxy refuses an empty list, which would hold for all requests.
fn joined(parts: Vec<Formula>) -> Formula {
    if parts.is_empty() { Formula::unknown("the condition has an empty part") } else { Formula::all(parts) }
}

/// Flags of a test: `-i` and `-m`.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) ignore_case: bool,
    /// The method of `-m`, such as `beg` or `found`.
    pub(crate) method: Option<String>,
}

/// The test that a predefined name means: `METH_GET` is `method GET HEAD`.
fn predefined(name: &str) -> Option<&'static str> {
    Some(match name {
        "TRUE" | "HTTP" | "WAIT_END" | "HTTP_URL_SLASH" => "always_true",
        "FALSE" | "HTTP_URL_ABS" => "always_false",
        "LOCALHOST" => "src 127.0.0.1/8 ::1",
        "METH_CONNECT" => "method CONNECT",
        "METH_DELETE" => "method DELETE",
        "METH_GET" => "method GET HEAD",
        "METH_HEAD" => "method HEAD",
        "METH_OPTIONS" => "method OPTIONS",
        "METH_POST" => "method POST",
        "METH_PUT" => "method PUT",
        "METH_TRACE" => "method TRACE",
        "HTTP_CONTENT" => "req.hdr_val(content-length) gt 0",
        _ => return None,
    })
}
