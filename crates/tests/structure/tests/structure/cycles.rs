//! Cycles between the modules of a crate.
//!
//! A module uses those that it imports, and those that it names by a path from `crate`, `super` or `self` anywhere else; a
//! name that another module re-exports counts as a use of the module that defines it. Modules that all lead to one another
//! form a cycle: none of them can be understood, or tested, without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tree::{crates, name, product, read};

/// Modules of a cycle at most, in any crate.
const LARGEST: usize = 4;

/// Modules that are lists, by crate. A list names all its entries and no entry needs the others to be understood, so the uses of a list
/// are not counted; those of its entries are.
const LISTS: &[(&str, &str)] = &[("answer", "features"), ("upstream-group", "features")];

type Module = Vec<String>;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

fn modules(folder: &Path, inside: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let module = if stem == "lib" { inside.clone() } else { [&inside[..], &[stem.to_owned()]].concat() };
        if path.is_dir() {
            modules(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(module, read(&path));
        }
    }
}

fn is_product(module: &Module) -> bool {
    !module.iter().any(|part| part == "tests" || part == "testing" || part == "fuzz")
}

/// A name that a module imports, or re-exports.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    path: String,
    name: String,
    is_public: bool,
}

/// The imports in the product part of a file, groups taken apart, and the paths that it writes elsewhere.
fn used_paths(text: &str) -> (Vec<Import>, Vec<String>) {
    let lines = product(text).into_iter().map(|line| line.split("//").next().unwrap_or_default().trim());
    let code = lines.collect::<Vec<_>>().join(" ");
    let (mut imports, mut paths) = (Vec::new(), Vec::new());
    for statement in code.split(';') {
        match statement.rsplit_once("use ").filter(|(before, _)| is_before_use(before)) {
            Some((before, tree)) => {
                let is_public = before
                    .trim_end()
                    .rsplit([' ', '}', '{'])
                    .next()
                    .is_some_and(|word| word.starts_with("pub"));
                expand("", tree, is_public, &mut imports);
                written_paths(before, &mut paths);
            }
            None => written_paths(statement, &mut paths),
        }
    }
    (imports, paths)
}

/// Whether a statement goes on with `use` after this: at its beginning, or behind what ends one, or what makes it public.
fn is_before_use(before: &str) -> bool {
    let before = before.trim_end();
    before.is_empty() || before.ends_with(['}', '{', ')', ']']) || before.ends_with("pub")
}

/// The paths from `crate`, `super` and `self` in code without imports. The path of a visibility (`pub(in ...)`) is no use.
fn written_paths(code: &str, paths: &mut Vec<String>) {
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    for start in ["crate::", "super::", "self::"].iter().flat_map(|start| code.match_indices(start)) {
        let (before, path) = code.split_at(start.0);
        if before.ends_with(is_word) || before.ends_with("::") || before.ends_with("in ") {
            continue;
        }
        let end = path.find(|sign: char| !is_word(sign) && sign != ':').unwrap_or(path.len());
        paths.push(path[..end].trim_end_matches(':').to_owned());
    }
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn expand(prefix: &str, tree: &str, is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, tree));
        let name = alias.rsplit("::").next().unwrap_or_default().trim().to_owned();
        imports.push(Import { path: format!("{prefix}{}", path.trim()), name, is_public });
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
                expand(&prefix, &group[start..index], is_public, imports);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !group[start..].trim().is_empty() {
        expand(&prefix, &group[start..], is_public, imports);
    }
}

/// The modules of a crate, and the names that each re-exports with their paths.
struct Sources {
    modules: BTreeMap<Module, String>,
    exports: BTreeMap<(Module, String), String>,
}

impl Sources {
    fn read(source: &Path) -> Self {
        let mut modules = BTreeMap::new();
        self::modules(source, &Vec::new(), &mut modules);
        modules.retain(|module, _| is_product(module));
        let exported = |(module, text): (&Module, &String)| {
            let public = used_paths(text).0.into_iter().filter(|import| import.is_public);
            public.map(|import| ((module.clone(), import.name), import.path)).collect::<Vec<_>>()
        };
        let exports = modules.iter().flat_map(exported).collect();
        Self { modules, exports }
    }

    /// The module that a path leads to, seen from `module`; `None` outside of the crate, and for the root.
    fn resolve(&self, path: &str, module: &Module) -> Option<Module> {
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
                if !self.modules.contains_key(&place) {
                    return None;
                }
                parts.next();
            }
        }
        for part in parts {
            place.push(part.to_owned());
            if !self.modules.contains_key(&place) {
                place.pop();
                let defined = self.exports.get(&(place.clone(), part.to_owned()));
                return match defined {
                    Some(path) => self.resolve(path, &place),
                    None => (!place.is_empty()).then_some(place),
                };
            }
        }
        (!place.is_empty()).then_some(place)
    }

    fn uses(&self) -> Uses {
        let used = |module: &Module, text: &str| {
            let (imports, paths) = used_paths(text);
            let paths = imports.into_iter().map(|import| import.path).chain(paths);
            paths.filter_map(|path| self.resolve(&path, module)).filter(|found| found != module).collect()
        };
        self.modules.iter().map(|(module, text)| (module.clone(), used(module, text))).collect()
    }
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
    let (mut wrong, mut arrows) = (Vec::new(), 0);
    for path in crates() {
        let mut uses = Sources::read(&path.join("src")).uses();
        arrows += uses.values().map(BTreeSet::len).sum::<usize>();
        for (_, list) in LISTS.iter().filter(|(owner, _)| *owner == name(&path)) {
            uses.remove(&vec![(*list).to_owned()]).expect("a list is a module of its crate");
        }
        let large = cycles(&uses).into_iter().filter(|cycle| cycle.len() > LARGEST);
        wrong.extend(large.map(|cycle| (name(&path).to_owned(), cycle)));
    }
    assert!(arrows > 1000, "only {arrows} uses found");
    assert!(wrong.is_empty(), "cycles of more than {LARGEST} modules: {wrong:#?}");
}

#[test]
fn uses_are_found_however_they_are_written() {
    let text = "//! use crate::not;\npub use one::A;\nuse crate::two::{B as C, three::{D, E}};\n#[cfg(unix)]\nuse super::four;\n\
                pub(in crate::none) fn f() { use self::five::F; crate::seven::g(super::eight::H::<self::nine::I>) }\n\
                #[cfg(test)]\nmod tests {\n    use crate::six;\n}\n";
    let (imports, paths) = used_paths(text);
    let imports: Vec<_> =
        imports.iter().map(|import| (&import.path[..], &import.name[..], import.is_public)).collect();
    let expected = [
        ("one::A", "A", true),
        ("crate::two::B", "C", false),
        ("crate::two::three::D", "D", false),
        ("crate::two::three::E", "E", false),
        ("super::four", "four", false),
        ("self::five::F", "F", false),
    ];
    assert_eq!(imports, expected);
    assert_eq!(paths, ["crate::seven::g", "super::eight::H", "self::nine::I"]);
}

#[test]
fn a_name_is_used_of_the_module_that_defines_it() {
    let path = |text: &str| text.split("::").map(str::to_owned).collect::<Module>();
    let modules = ["a", "b", "b::c"].map(|module| (path(module), String::new()));
    let exports = [("", "X", "b::Y"), ("b", "Y", "c::Z"), ("b", "Root", "crate::T")];
    let exports = exports.map(|(module, name, defined)| {
        (
            (
                module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect(),
                name.to_owned(),
            ),
            defined.to_owned(),
        )
    });
    let sources = Sources { modules: modules.into(), exports: exports.into() };
    assert_eq!(sources.resolve("crate::X", &path("a")), Some(path("b::c")));
    assert_eq!(sources.resolve("super::b::Y::new", &path("a")), Some(path("b::c")));
    assert_eq!(sources.resolve("crate::b::Other", &path("a")), Some(path("b")));
    assert_eq!(sources.resolve("crate::b::Root", &path("a")), None);
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
