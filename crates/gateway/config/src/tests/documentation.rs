//! The documentation names every key, and its examples are right.

use std::collections::HashSet;
use std::fs;

use super::*;

#[test]
fn the_examples_of_the_documentation_are_right() {
    for page in
        [include_str!("../../../../../docs/configuration.md"), include_str!("../../../../../README.md")]
    {
        let example =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let message = checked(folder().path(), example).expect_err("its certificates are not here");
        for line in message.lines() {
            assert!(line.contains(".chain: cannot read "), "{line}");
        }
    }
}

/// Files and folders with structs of keys, from the folder of this crate.
const KEYS: &[&str] = &[
    "src/raw.rs",
    "src/raw",
    "../../http/answer/src/features",
    "../../http/upstream-group/src/features",
    "../../visitors/trials/src/keys.rs",
];

/// The files with structs of keys at `path` and below. In the folder of features, these are the files called `keys.rs`.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let has_keys = !path.iter().any(|part| part == "features") || name.ends_with("keys.rs");
        return has_keys.then(|| path.to_owned()).into_iter().collect();
    }
    let entries = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|entry| !entry.ends_with("values")).flat_map(|entry| sources(&entry)).collect()
}

#[test]
fn every_key_is_documented() {
    let pages = [
        include_str!("../../../../../docs/configuration.md"),
        include_str!("../../../../../docs/keyless.md"),
        include_str!("../../../../../docs/pages.md"),
    ];
    let words: HashSet<_> = pages.into_iter().flat_map(words_of).collect();
    let source = KEYS.iter().flat_map(|folder| sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)));
    let source = source.map(|file| fs::read_to_string(file).expect("text")).collect::<String>();
    let fields = source.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
    let keys: Vec<_> = fields.filter(|(name, _)| !name.starts_with("fn ")).collect();
    assert!(keys.len() > 250, "only {} keys found", keys.len());
    for (key, _) in keys {
        let key = match key {
            "directory" => "static",
            // Not keys: the form that one key may have, and parts of tables.
            "or_any_port" | "own" | "features" | "destination" | "is_list" => continue,
            key => key.trim_start_matches("r#"),
        };
        assert!(words.contains(key), "{key} is not documented");
    }
}

fn words_of(page: &str) -> impl Iterator<Item = &str> {
    page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The fields of structs called `...Keys` with their comments, in lines of a source: a key and its meaning.
fn comments(source: &str) -> Vec<(String, String)> {
    let (mut found, mut comment, mut is_flat) = (Vec::new(), Vec::new(), false);
    for line in source.lines() {
        if let Some(name) =
            line.trim_start_matches("pub(crate) ").trim_start_matches("pub ").strip_prefix("struct ")
        {
            is_flat = name.split([' ', '<']).next().is_some_and(|name| name.ends_with("Keys"));
        } else if let Some(text) = line.strip_prefix("    /// ") {
            comment.push(text);
            continue;
        } else if line.starts_with("    #[") {
            continue;
        } else if let Some((name, _)) = line.strip_prefix("    pub ").and_then(|line| line.split_once(':'))
            && is_flat
        {
            let name = if name == "directory" { "static" } else { name };
            found.push((name.to_owned(), comment.join(" ")));
        }
        comment.clear();
    }
    found
}

/// The rows below a heading of `docs/configuration.md`: the keys and the meaning.
fn rows<'p>(page: &'p str, heading: &str) -> Vec<(Vec<&'p str>, &'p str)> {
    let section = page.split(heading).nth(1).expect("the heading");
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells =
        rows.skip(2).map(|row| row.trim_matches('|').splitn(4, '|').map(str::trim).collect::<Vec<_>>());
    cells.map(|cells| (cells[0].split('`').skip(1).step_by(2).collect(), cells[3])).collect()
}

/// A comment as the meaning of a row: without capital and full stop.
fn meaning(comment: &str) -> String {
    let comment = comment.strip_suffix('.').unwrap_or(comment);
    if let Some(link) = comment.strip_prefix('[') {
        return format!("[{}", meaning(link));
    }
    let (first, rest) = comment.split_at(comment.chars().next().map_or(0, char::len_utf8));
    let is_name = rest.starts_with(|next: char| next.is_uppercase());
    if is_name { comment.to_owned() } else { first.to_lowercase() + rest }
}

#[test]
fn rows_of_hosts_and_routes_are_the_comments_of_their_keys() {
    let page = include_str!("../../../../../docs/configuration.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../http/answer/src/features");
    let files = [folder.join("body.rs"), folder.with_extension("rs")];
    let files = sources(&folder).into_iter().chain(files);
    let comments: Vec<_> =
        files.flat_map(|file| comments(&fs::read_to_string(file).expect("a source"))).collect();
    let routes = rows(page, "### `[[host.route]]`\n");
    let of_routes: HashSet<_> = routes.iter().flat_map(|(keys, _)| keys).collect();
    let hosts = rows(page, "## `[[host]]`\n");
    // Keys of hosts that are defaults for routes have the comment of the route.
    let hosts = hosts.iter().filter(|(keys, _)| !keys.iter().any(|key| of_routes.contains(key)));
    let mut checked = 0;
    for (keys, written) in routes.iter().chain(hosts) {
        for key in keys {
            let Some(own) = comments.iter().find(|(name, text)| name == key && meaning(text) == *written)
            else {
                let found = comments.iter().filter(|(name, _)| name == key).map(|(_, text)| meaning(text));
                let found = found.collect::<Vec<_>>();
                // Certificates and listeners are no features.
                let is_own = [
                    "certificates",
                    "acme",
                    "on_demand",
                    "upstream",
                    "certificate_folder",
                    "default",
                    "http3",
                ];
                assert!(
                    found.is_empty() && is_own.contains(key),
                    "{key}: docs/configuration.md has {written:?}, the comments have {found:#?}"
                );
                continue;
            };
            checked += usize::from(!own.1.is_empty());
        }
    }
    assert!(checked > 40, "only {checked} rows found");
}

/// Headings of the tables about `[upstream.NAME]`.
const UPSTREAM_TABLES: &[&str] = &[
    "## `[upstream.NAME]`\n",
    "### Sticky cookies\n",
    "### Hedging\n",
    "### Servers from DNS\n",
    "### `[upstream.NAME.cgi]`\n",
    "### `[upstream.NAME.timeouts]`\n",
    "### `[upstream.NAME.pool]`\n",
    "### `[upstream.NAME.health]`\n",
    "### `[upstream.NAME.tls]`\n",
];

#[test]
fn rows_of_upstreams_are_the_comments_of_their_keys() {
    let page = include_str!("../../../../../docs/configuration.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = sources(&folder.join("../../http/upstream-group/src/features"));
    let files = files.into_iter().chain([folder.join("src/raw/upstreams.rs")]);
    let comments: Vec<_> =
        files.flat_map(|file| comments(&fs::read_to_string(file).expect("a source"))).collect();
    let mut checked = 0;
    for (keys, written) in UPSTREAM_TABLES.iter().flat_map(|heading| rows(page, heading)) {
        for key in keys {
            let own = comments.iter().filter(|(name, _)| name == key).map(|(_, text)| meaning(text));
            let own = own.collect::<Vec<_>>();
            assert!(
                own.iter().any(|text| *text == written),
                "{key}: docs/configuration.md has {written:?}, the comments have {own:#?}"
            );
            checked += 1;
        }
    }
    assert!(checked > 45, "only {checked} rows found");
}
