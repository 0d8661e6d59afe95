//! Matchers: definitions with `@`, paths, and their meaning for the requests of a route.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::caddy::environment::{has_variable, host_name, resolve};
use crate::caddy::host_name::Pattern;
use crate::caddy::path::Shape;
use crate::caddy::world::{Branch, World};
use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::pattern;
use crate::toml;

/// Networks that `private_ranges` stands for.
pub(crate) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// A condition on requests, such as `path /api/*` or `not { method GET }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Formula {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Path(Vec<Shape>),
    PathExpression {
        name: String,
        expression: String,
    },
    Host(Vec<Pattern>),
    Scheme(bool),
    Branch(Branch),
    /// A condition without a counterpart, with the reason.
    Unknown(String),
}

/// Value of a [`Formula`] for requests. `Undecided` has the [`Branch`] that divides them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    True,
    False,
    Undecided(Branch),
    Unknown(String),
}

impl Value {
    pub(crate) fn of(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }

    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            other => other,
        }
    }
}

/// Named matchers of a block and of those around it, by names such as `@api`.
pub(crate) type Named = BTreeMap<String, Rc<Formula>>;

impl Formula {
    /// Always, as the matcher `*`.
    pub(crate) fn always() -> Self {
        Self::All(Vec::new())
    }

    /// A matcher without a counterpart: `Formula::Unknown`.
    fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// The condition of paths such as `/api/*`; `Formula::Unknown` if one has no [`Shape`].
    pub(crate) fn paths<T: AsRef<str>>(texts: &[T]) -> Self {
        let shapes: Option<Vec<_>> = texts.iter().map(|text| Shape::of(&resolve(text.as_ref()))).collect();
        shapes.map_or_else(|| Self::unknown("the path has a placeholder or an encoding"), Self::Path)
    }

    /// Number of its parts, for the bound of the whole work.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::All(parts) | Self::Any(parts) => 1 + parts.iter().map(Self::weight).sum::<usize>(),
            Self::Not(part) => 1 + part.weight(),
            Self::Path(shapes) => 1 + shapes.len(),
            Self::Host(names) => 1 + names.len(),
            _ => 1,
        }
    }

    /// Calls `visit` with each part that is not `All`, `Any` or `Not`.
    pub(crate) fn visit<'f>(&'f self, visit: &mut impl FnMut(&'f Self)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.visit(visit)),
            Self::Not(part) => part.visit(visit),
            other => visit(other),
        }
    }

    /// The only path of the matcher, by which Caddy sorts directives.
    pub(crate) fn single_path(&self) -> Option<&Shape> {
        match self {
            Self::Path(shapes) if shapes.len() == 1 => shapes.first(),
            Self::All(parts) => {
                let mut paths = parts.iter().filter(|part| matches!(part, Self::Path(_)));
                let first = paths.next()?;
                if paths.next().is_some() { None } else { first.single_path() }
            }
            _ => None,
        }
    }

    /// The [`Value`] for the requests of `world`. `widely` also finds paths in another case.
    pub(crate) fn value(&self, world: &World, widely: bool) -> Value {
        match self {
            Self::All(parts) => combined(parts, world, widely, &Value::False),
            Self::Any(parts) => combined(parts, world, widely, &Value::True),
            Self::Not(part) => part.value(world, widely).not(),
            Self::Path(shapes) => decided(world.path(shapes, widely)),
            Self::PathExpression { expression, .. } => decided(world.path_expression(expression)),
            Self::Host(names) => world.is_host(names).map_or_else(Value::Unknown, Value::of),
            Self::Scheme(tls) => match world.is_tls {
                Some(own) => Value::of(own == *tls),
                None => Value::Unknown("brisk has no condition on the scheme of a request".to_owned()),
            },
            Self::Branch(branch) => match (world.foreign(branch), world.known(branch)) {
                (Some(reason), _) => Value::Unknown(reason),
                (None, Some(known)) => Value::of(known),
                (None, None) => Value::Undecided(branch.clone()),
            },
            Self::Unknown(reason) => Value::Unknown(reason.clone()),
        }
    }
}

fn decided(value: Result<Result<bool, Branch>, String>) -> Value {
    match value {
        Ok(Ok(known)) => Value::of(known),
        Ok(Err(branch)) => Value::Undecided(branch),
        Err(reason) => Value::Unknown(reason),
    }
}

/// The value of several conditions of which `decisive` decides alone: `False` for `All`, `True` for `Any`.
fn combined(parts: &[Formula], world: &World, widely: bool, decisive: &Value) -> Value {
    let (mut undecided, mut unknown) = (None, None);
    for part in parts {
        match part.value(world, widely) {
            value if value == *decisive => return value,
            value @ Value::Undecided(_) => undecided = undecided.or(Some(value)),
            value @ Value::Unknown(_) => unknown = unknown.or(Some(value)),
            _ => {}
        }
    }
    undecided.or(unknown).unwrap_or_else(|| decisive.clone().not())
}

/// The [`Named`] matchers of a block, in addition to those of `outer`. `peers` is whether there are `trusted_proxies`.
pub(crate) fn named(block: &[Directive], outer: &Named, peers: bool) -> Named {
    let mut all = outer.clone();
    for directive in block.iter().filter(|directive| directive.name.starts_with('@')) {
        let formula = definition(directive, peers);
        all.insert(directive.name.clone(), Rc::new(formula));
    }
    all
}

/// A definition: one matcher on the line (`@a path /x`), an expression in quotes, or a block.
fn definition(directive: &Directive, peers: bool) -> Formula {
    match directive.args.as_slice() {
        [] => set(directive.inner(), peers),
        [expression] if directive.block.is_none() && expression.contains([' ', '(', '{']) => {
            Formula::unknown("brisk has no expressions of CEL")
        }
        [kind, args @ ..] => one(kind, args, directive.inner(), peers),
    }
}

/// Several matchers, which all have to hold; those of one kind, as two lines `path`, are alternatives, except for `not`.
fn set(block: &[Directive], peers: bool) -> Formula {
    let (mut kinds, mut places): (Vec<Vec<Formula>>, BTreeMap<String, usize>) = Default::default();
    let mut queries = Vec::new();
    for line in block.iter().filter(|line| line.name != "import") {
        let key = match line.name.as_str() {
            "header" | "header_regexp" => {
                format!("{} {}", line.name, line.arg(0).to_ascii_lowercase())
            }
            "not" => format!("not {}", kinds.len()),
            name => name.to_owned(),
        };
        // Lines `query` are joined, because parameters of one name are alternatives over all of them.
        if line.name == "query" {
            queries.extend(line.args.iter().map(|arg| resolve(arg)));
            continue;
        }
        let formula = one(&line.name, &line.args, line.inner(), peers);
        let place = *places.entry(key).or_insert(kinds.len());
        kinds.resize(kinds.len().max(place + 1), Vec::new());
        kinds[place].push(formula);
    }
    if !queries.is_empty() {
        kinds.push(vec![query(&queries)]);
    }
    let any = |mut all: Vec<Formula>| match (all.len(), all.pop()) {
        (1, Some(one)) => one,
        (_, last) => {
            all.extend(last);
            merged(all)
        }
    };
    Formula::All(kinds.into_iter().map(any).collect())
}

/// Alternatives: `Formula::Any`; several lists of paths are one `Formula::Path`.
fn merged(all: Vec<Formula>) -> Formula {
    let paths: Option<Vec<Vec<Shape>>> = all
        .iter()
        .map(|part| match part {
            Formula::Path(shapes) => Some(shapes.clone()),
            _ => None,
        })
        .collect();
    paths.map_or(Formula::Any(all), |paths| Formula::Path(paths.concat()))
}

/// A matcher with its arguments, perhaps behind `not`, which may be there many times.
fn one(kind: &str, args: &[String], block: &[Directive], peers: bool) -> Formula {
    if kind != "not" {
        return positive(kind, args, block, peers);
    }
    let more = args.iter().take_while(|arg| *arg == "not").count();
    let inner = match &args[more..] {
        [] => set(block, peers),
        [kind, args @ ..] => positive(kind, args, block, peers),
    };
    if more % 2 == 0 { Formula::Not(Box::new(inner)) } else { inner }
}

/// A matcher without `not`.
fn positive(kind: &str, texts: &[String], block: &[Directive], peers: bool) -> Formula {
    let args: Vec<String> = texts.iter().map(|arg| resolve(arg)).collect();
    let test = |key, name: &str, value: String| Formula::Branch(Branch::When(When::test(key, name, value)));
    match (kind, args.as_slice()) {
        ("path", paths) if !paths.is_empty() => Formula::paths(paths),
        ("path_regexp", [.., expression]) => {
            // The name is optional: `path_regexp NAME EXPRESSION` or `path_regexp EXPRESSION`.
            let name = if args.len() > 1 { args[0].clone() } else { String::new() };
            match pattern::translate(expression, false) {
                Ok(expression) => Formula::PathExpression { name, expression },
                Err(reason) => Formula::Unknown(reason),
            }
        }
        ("host", _) => hosts(texts),
        ("method", list) if !list.is_empty() => methods(list),
        ("protocol", [name]) => match name.as_str() {
            "http" => Formula::Scheme(false),
            "https" => Formula::Scheme(true),
            "grpc" => test("headers", "Content-Type", "{ regex = \"^application/grpc\" }".to_owned()),
            name => Formula::unknown(format!("brisk has no condition on the protocol {name}")),
        },
        ("remote_ip" | "client_ip", networks) => self::networks(kind, networks, peers),
        ("header", _) => header(&args),
        ("header_regexp", [.., name, expression]) => match pattern::translate(expression, false) {
            Ok(own) if !name.eq_ignore_ascii_case("host") => {
                test("headers", name, format!("{{ regex = {} }}", toml::raw(&own)))
            }
            Ok(_) => Formula::unknown("brisk has no condition on Host: names of hosts decide"),
            Err(reason) => Formula::Unknown(reason),
        },
        ("query", pairs) if !pairs.is_empty() => query(pairs),
        ("file", _) => file(&args, block),
        ("expression", _) => Formula::unknown("brisk has no expressions of CEL"),
        _ => Formula::unknown(format!("brisk has no counterpart of the matcher {kind}")),
    }
}

/// The names of a matcher `host`. One with a variable keeps it, because the name of the site has it too.
fn hosts(texts: &[String]) -> Formula {
    let pattern = |text: &String| {
        let name = host_name(text);
        let text = if has_variable(text) { text.clone() } else { name.clone() };
        is_host(&name).then_some(Pattern { name, text })
    };
    let all: Option<Vec<Pattern>> = texts.iter().map(pattern).collect();
    let reason = "a name of the matcher is a placeholder, or a variable without a value on this machine";
    all.map_or_else(|| Formula::unknown(reason), Formula::Host)
}

/// The methods of a matcher. `GET` of brisk includes `HEAD`, and that of Caddy does not.
fn methods(list: &[String]) -> Formula {
    if list.iter().any(|method| method.bytes().any(|byte| !byte.is_ascii_uppercase() && byte != b'-')) {
        return Formula::unknown("Caddy compares methods in their case, and those of HTTP are upper case");
    }
    let has = |method: &str| list.iter().any(|own| own == method);
    let own = Formula::Branch(Branch::Methods(list.to_vec()));
    if !has("GET") || has("HEAD") {
        return own;
    }
    let head = Formula::Branch(Branch::Methods(vec!["HEAD".to_owned()]));
    Formula::All(vec![Formula::Not(Box::new(head)), own])
}

fn is_host(name: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let is_plain = |next: char| next.is_ascii_alphanumeric() || matches!(next, '-' | '.' | '_');
    !name.is_empty() && name.chars().all(is_plain)
}

fn networks(kind: &str, networks: &[String], peers: bool) -> Formula {
    let mut all: Vec<String> = Vec::new();
    for network in networks {
        match network.as_str() {
            "private_ranges" => all.extend(PRIVATE.map(str::to_owned)),
            own if crate::nginx::access::contains(own, own) => all.push(own.to_owned()),
            own => return Formula::unknown(format!("{own} is no network")),
        }
    }
    if all.is_empty() || (peers && kind == "remote_ip") {
        return Formula::unknown(
            "with trusted_proxies, brisk compares the address of the client, not that of the proxy",
        );
    }
    Formula::Branch(Branch::When(When::plain("networks", toml::list(all))))
}

fn header(args: &[String]) -> Formula {
    let (name, value) = match args {
        [name] => (name.as_str(), None),
        [name, value] => (name.as_str(), Some(value.as_str())),
        _ => return Formula::unknown("the matcher header has a name and a value"),
    };
    let (name, is_absent) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
    if name.eq_ignore_ascii_case("host") || name.is_empty() {
        return Formula::unknown("brisk has no condition on Host: names of hosts decide");
    }
    let expression = |start: &str, text: &str, end: &str| {
        format!("{{ regex = {} }}", toml::raw(&format!("{start}{}{end}", regex::escape(text))))
    };
    let test = match value {
        None if is_absent => "false".to_owned(),
        None | Some("*") => "true".to_owned(),
        Some(value) if value.contains('{') => return Formula::unknown("the value has a placeholder"),
        Some(value) => match (value.strip_prefix('*'), value.strip_suffix('*')) {
            (Some(inner), Some(_)) => expression("", inner.strip_suffix('*').unwrap_or(inner), ""),
            (Some(end), None) => expression("", end, "$"),
            (None, Some(start)) => expression("^", start, ""),
            (None, None) => toml::text(value),
        },
    };
    let formula = Formula::Branch(Branch::When(When::test("headers", name, test)));
    if is_absent && value.is_some() { Formula::Not(Box::new(formula)) } else { formula }
}

fn query(pairs: &[String]) -> Formula {
    let mut names: BTreeMap<&str, Vec<Formula>> = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "*"));
        if name.is_empty() || pair.contains('{') {
            return Formula::unknown("the parameter has no name or a placeholder");
        }
        let test = if value == "*" { "true".to_owned() } else { toml::text(value) };
        let formula = Formula::Branch(Branch::When(When::test("query", name, test)));
        names.entry(name).or_default().push(formula);
    }
    Formula::All(names.into_values().map(Formula::Any).collect())
}

/// The matcher `file` for the file of the path: without arguments, or with ones such as `{path}`.
fn file(args: &[String], block: &[Directive]) -> Formula {
    let mut tries: Vec<String> = args.to_vec();
    for line in block {
        match line.name.as_str() {
            "try_files" => tries.extend(line.args.iter().cloned()),
            name => {
                return Formula::unknown(format!("brisk has no counterpart of {name} in the matcher file"));
            }
        }
    }
    let is_own = |text: &String| {
        matches!(&**text, "{path}" | "{path}/" | "{path}/index.html" | "{http.request.uri.path}")
    };
    if tries.iter().all(is_own) {
        Formula::Branch(Branch::File)
    } else {
        Formula::unknown("brisk looks for the file of the path only")
    }
}
