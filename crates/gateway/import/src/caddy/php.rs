//! PHP: `php_fastcgi`.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::flow::Absent;
use crate::caddy::flow::Flow;
use crate::caddy::placeholders::{Use, template};
use crate::caddy::plan::Action;
use crate::caddy::proxy;
use crate::caddy::state::State;
use crate::caddy::step::Step;
use crate::caddy::units;
use crate::caddy::world::{View, World};
use crate::toml::{self, Keys};

/// Settings of a PHP server: the keys of `cgi`, and `timeouts`.
struct Php {
    root: String,
    files: Option<String>,
    script: Option<String>,
    index: Option<String>,
    params: Keys,
    timeouts: Keys,
}

/// `php_fastcgi`: existing files without the suffix of scripts are for later directives, all others for the server.
pub(crate) fn serve<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &mut World,
) -> Flow {
    let directive = step.directive;
    let refuse = |reason: &str| Flow::refused(context, directive, reason);
    context.carried(directive);
    let root = state.root.clone().unwrap_or_else(|| context.path(""));
    let script = Some("index.php".to_owned());
    let mut php =
        Php { root, files: None, script, index: None, params: Keys::default(), timeouts: Keys::default() };
    if let Err(reason) = settings(context, step, state, world, &mut php) {
        return refuse(&reason);
    }
    // After `try_files`, the path of requests without a file is the script; a `rewrite` to a script is for existing files too.
    let mut is_fixed = false;
    match world.view.clone() {
        View::Fixed(path) => {
            let path = path.split('?').next().unwrap_or_default().to_owned();
            if !is_script(&path) {
                return Flow::Continue;
            }
            is_fixed = true;
            // brisk looks for the script itself, so that the path of the client stays as it is.
            if world.has_file() == Some(false) {
                php.script = Some(path.trim_start_matches('/').to_owned());
                world.view = View::default();
            }
        }
        View::Pattern { .. } => return refuse("the path is rewritten before"),
        View::Moved { .. } if world.has_file() == Some(true) => return Flow::Continue,
        View::Moved { .. } => {}
    }
    let servers = match proxy::addresses(&step.args, "fastcgi") {
        Ok(servers) => servers,
        Err(reason) => return refuse(&reason),
    };
    let mut cgi = Keys::of("root", environment::text(&php.root));
    if let Some(files) = &php.files {
        cgi.set("files", environment::text(files));
    }
    if let Some(index) = &php.index {
        cgi.set("index", toml::text(index));
    }
    if let Some(script) = &php.script {
        cgi.set("script", toml::text(script));
    }
    cgi.set("path_info", "true");
    if !php.params.is_empty() {
        cgi.set("params", php.params.inline());
    }
    let mut keys = Keys::of("servers", environment::list(&servers));
    keys.set("cgi", cgi.inline());
    if !php.timeouts.is_empty() {
        keys.set("timeouts", php.timeouts.inline());
    }
    let name = context.named_table("upstream", "php", &keys, directive);
    let action = Action::Upstream { name, keys: Keys::default(), is_cgi: true };
    if is_fixed || world.has_file().is_some() {
        Flow::Finish(action)
    } else {
        Flow::Files(Some(Absent::Responds(action)))
    }
}

fn settings(
    context: &Context<'_>,
    step: &Step<'_>,
    state: &State<'_>,
    world: &World,
    php: &mut Php,
) -> Result<(), String> {
    for line in step.directive.inner() {
        let value = resolve(line.arg(0));
        context.carried(line);
        match line.name.as_str() {
            // The files are at the root of the site, and the application server finds them elsewhere.
            "root" => {
                php.files = Some(php.root.clone());
                php.root = context.path(line.arg(0));
            }
            "index" if value == "off" => php.script = None,
            "index" => {
                php.script = Some(value.clone());
                if value != "index.php" {
                    php.index = Some(value);
                }
            }
            "try_files" => match line.args.last().map(|last| resolve(last)) {
                Some(last) if last == "=404" => php.script = None,
                Some(last)
                    if last.split('?').next().is_some_and(|path| is_script(path) && !path.contains('{')) =>
                {
                    php.script = last.split('?').next().map(|path| path.trim_start_matches('/').to_owned());
                }
                Some(last) if last.starts_with('{') => php.script = None,
                _ => return Err("the last file is no script".to_owned()),
            },
            "split" if line.args.iter().all(|arg| arg == ".php") => {}
            "split" => return Err("the ends of scripts are other than .php".to_owned()),
            "env" => {
                let own = template(line.arg(1), state, world, Use::Value);
                match own {
                    Ok(own) => php.params.set(&value, environment::text(&own)),
                    Err(reason) => context.missing(line, reason, "write the variable in cgi.params"),
                }
            }
            "dial_timeout" => timeout(php, "connect", &value),
            "read_timeout" => timeout(php, "head", &value),
            "resolve_root_symlink" => context
                .different(line, "a changed link needs its target in cgi.root, or opcache without paths"),
            "capture_stderr" | "write_timeout" => context.unneeded(line, "brisk does this without a setting"),
            "trusted_proxies" => context.different(line, "write trusted_proxies in [server]"),
            name => return Err(format!("brisk has no counterpart of {name} here")),
        }
    }
    Ok(())
}

/// Whether Caddy passes the path to the server: it ends with `.php`.
fn is_script(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".php")
}

fn timeout(php: &mut Php, key: &str, text: &str) {
    if let Some(time) = units::duration(text, 100, 86_400_000) {
        php.timeouts.set(key, time);
    }
}
