//! Cycles between the modules of a crate, as far as its `use` lines show them.
//!
//! A module uses those that it names after `use`. Modules that all lead to one another form a cycle: none of them can be
//! understood, or tested, without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates whose cycles are held, with the number of modules that the largest may have.
const LARGEST: &[(&str, usize)] = &[("gateway", 1), ("proxy", 4), ("server", 1)];

/// The folders of `proxy` that are layers, the highest first: each uses those after it, and modules outside of them.
const LAYERS: &[&str] = &["client", "answer", "upstream"];

/// The body of a response has a variant for that of an upstream, which spares a call through a table for each frame.
const UPWARD: (&str, &str) = ("body", "upstream::body");

type Module = Vec<String>;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

fn modules(folder: &Path, inside: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let module = if stem == "lib" { inside.clone() } else { [&inside[..], &[stem.to_owned()]].concat() };
        if path.is_dir() {
            modules(&path, &module, found);
        } else {
            found.insert(module, fs::read_to_string(&path).expect("a source file"));
        }
    }
}

fn is_product(module: &Module) -> bool {
    !module.iter().any(|part| part == "tests" || part == "fuzz")
}

/// The paths after `use` in the product part of a file, groups taken apart.
fn used_paths(text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()).collect();
    let end = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests"));
    let code = lines[..end.unwrap_or(lines.len())].join(" ");
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let words = statement.rsplit_once("use ").filter(|(before, _)| is_before_use(before));
        if let Some((_, tree)) = words {
            expand("", tree, &mut paths);
        }
    }
    paths
}

/// Whether a statement goes on with `use` after this: at its beginning, or behind what ends one, or what makes it public.
fn is_before_use(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with(['}', '{', ')', ']']) || before.ends_with("pub")
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        paths.push(format!("{prefix}{}", name.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", before.trim());
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (mut depth, mut start) = (0, 0);
    for (index, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                expand(&prefix, &group[start..index], paths);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !group[start..].trim().is_empty() {
        expand(&prefix, &group[start..], paths);
    }
}

/// The module that a path leads to, seen from `module`; `None` outside of the crate, and for the root.
fn resolve(path: &str, module: &Module, all: &BTreeMap<Module, String>) -> Option<Module> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut place = module.clone();
    match *parts.peek()? {
        "crate" => {
            place.clear();
            parts.next();
        }
        "self" => drop(parts.next()),
        "super" => {
            while parts.next_if(|part| *part == "super").is_some() {
                place.pop();
            }
        }
        first => {
            place.push(first.to_owned());
            if !all.contains_key(&place) {
                return None;
            }
            parts.next();
        }
    }
    for part in parts {
        place.push(part.to_owned());
        if !all.contains_key(&place) {
            place.pop();
            break;
        }
    }
    (!place.is_empty()).then_some(place)
}

fn uses(source: &Path) -> Uses {
    let mut all = BTreeMap::new();
    modules(source, &Vec::new(), &mut all);
    all.retain(|module, _| is_product(module));
    let used = |module: &Module, text: &str| {
        let found = used_paths(text).into_iter().filter_map(|path| resolve(&path, module, &all));
        found.filter(|found| found != module).collect()
    };
    all.iter().map(|(module, text)| (module.clone(), used(module, text))).collect()
}

/// All modules that `module` leads to.
fn reached<'a>(module: &'a Module, uses: &'a Uses) -> BTreeSet<&'a Module> {
    let (mut found, mut left) = (BTreeSet::new(), vec![module]);
    while let Some(next) = left.pop() {
        left.extend(uses.get(next).into_iter().flatten().filter(|used| found.insert(*used)));
    }
    found
}

/// Groups of modules that all lead to one another.
fn cycles(uses: &Uses) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> = uses.keys().map(|module| (module, reached(module, uses))).collect();
    let cycle = |module: &Module| {
        let others = reached[module]
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|reached| reached.contains(module)));
        others.map(|other| other.join("::")).collect::<Vec<_>>()
    };
    uses.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

#[test]
fn no_cycle_of_modules_is_larger_than_it_may_be() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in a folder");
    for (name, largest) in LARGEST {
        let uses = uses(&crates.join(name).join("src"));
        assert!(
            uses.values().map(BTreeSet::len).sum::<usize>() > uses.len(),
            "{name}: the uses are not found"
        );
        let wrong: Vec<_> = cycles(&uses).into_iter().filter(|cycle| cycle.len() > *largest).collect();
        assert!(wrong.is_empty(), "{name}: cycles of more than {largest} modules: {wrong:#?}");
    }
}

/// How high a module is; 0 outside of the layers.
fn floor(module: &Module) -> usize {
    let layer = LAYERS.iter().position(|layer| module.first().is_some_and(|first| first == layer));
    layer.map_or(0, |layer| LAYERS.len() - layer)
}

#[test]
fn the_layers_of_proxy_use_those_below_them_alone() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in a folder");
    let uses = uses(&crates.join("proxy/src"));
    assert!(LAYERS.iter().all(|layer| uses.contains_key(&vec![(*layer).to_owned()])), "a layer is gone");
    // The root only names what the crate offers.
    let arrows = uses.iter().filter(|(user, _)| !user.is_empty());
    let arrows = arrows.flat_map(|(user, used)| used.iter().map(move |used| (user, used)));
    let upward = arrows.filter(|(user, used)| floor(used) > floor(user));
    let upward = upward.map(|(user, used)| (user.join("::"), used.join("::")));
    let wrong: Vec<_> = upward.filter(|(user, used)| (user.as_str(), used.as_str()) != UPWARD).collect();
    assert!(wrong.is_empty(), "upward arrows: {wrong:#?}");
}

#[test]
fn uses_are_found_however_they_are_written() {
    let text = "//! use crate::not;\npub use one::A;\nuse crate::two::{B as C, three::{D, E}};\n#[cfg(unix)]\nuse super::four;\n\
                fn f() { use self::five::F; }\n#[cfg(test)]\nmod tests {\n    use crate::six;\n}\n";
    let expected = [
        "one::A",
        "crate::two::B",
        "crate::two::three::D",
        "crate::two::three::E",
        "super::four",
        "self::five::F",
    ];
    assert_eq!(used_paths(text), expected);
}

#[test]
fn a_cycle_is_found_through_any_number_of_modules() {
    let module = |name: &str| vec![name.to_owned()];
    let uses: Uses = [("a", &["b"][..]), ("b", &["c", "d"]), ("c", &["a"]), ("d", &[]), ("e", &["a"])]
        .into_iter()
        .map(|(user, used)| (module(user), used.iter().map(|used| module(used)).collect()))
        .collect();
    assert_eq!(cycles(&uses), BTreeSet::from([vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]]));
}
