//! Keys that take effect before the rest of the configuration is read, while the process has one thread.

use std::path::Path;

use brisk_config_file::Sources;

use super::variable;

/// Keys that take effect before the configuration is resolved. Mistakes are reported when all keys are read.
#[derive(Debug, Default)]
pub struct EarlyKeys {
    /// `[keys] isolate`, if it is `true`.
    pub isolation: Option<Isolation>,
    /// `server.user`.
    pub user: Option<String>,
    /// Whether `server.sandbox` is `"off"`.
    pub is_sandbox_off: bool,
    /// Whether the gateway runs programs (`acme.dns.hook`).
    pub runs_programs: bool,
}

/// `[keys] isolate`.
#[derive(Debug)]
pub struct Isolation {
    /// The user of the key process.
    pub user: Option<String>,
}

/// Reads the keys in `sources`. A text that is no TOML has none.
pub fn early_keys(sources: &Sources) -> EarlyKeys {
    // `Document` is not needed, since a text that is no TOML is reported there.
    let tables: Vec<_> =
        sources.all().iter().filter_map(|source| source.text.parse::<toml::Table>().ok()).collect();
    let table = |name: &str| tables.iter().find_map(|table| table.get(name)?.as_table());
    let server = table("server");
    let dns = table("acme").and_then(|acme| acme.get("dns")?.as_table());
    EarlyKeys {
        isolation: table("keys").and_then(|keys| isolation(keys, sources)),
        // Without a variable of its text the user stays: the error is reported with those of the other texts.
        user: server.and_then(|server| text(server, "user", sources)).and_then(Result::ok),
        is_sandbox_off: server.is_some_and(|server| {
            text(server, "sandbox", sources).is_some_and(|written| written.as_deref() == Ok("off"))
        }),
        runs_programs: dns.is_some_and(|dns| dns.contains_key("hook")),
    }
}

fn isolation(keys: &toml::Table, sources: &Sources) -> Option<Isolation> {
    if !keys.get("isolate")?.as_bool()? {
        return None;
    }
    // Without a variable of its text no process is started: the error is reported with those of the other texts.
    let user = text(keys, "isolate_user", sources).transpose().ok()?;
    Some(Isolation { user })
}

/// The text of a key, with its variables of the environment.
fn text(table: &toml::Table, key: &str, sources: &Sources) -> Option<Result<String, String>> {
    let base = sources.main().parent().unwrap_or(Path::new(""));
    let text = table.get(key)?.as_str()?;
    Some(brisk_config_file::expand_text(text, base, &variable))
}
