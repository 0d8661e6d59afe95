//! Application servers: `fastcgi_param`, `uwsgi_param` and `scgi_param`, and the scripts that paths name.

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::scope::Scope;
use crate::nginx::upstream::Protocol;
use crate::nginx::variables::{Use, Values};
use crate::toml::{self, Keys};

/// Variables that brisk sends without a setting, with the values that mean the same in nginx.
const SAME: &[(&str, &str)] = &[
    ("QUERY_STRING", "$query_string $args"),
    ("REQUEST_METHOD", "$request_method"),
    ("CONTENT_TYPE", "$content_type $http_content_type"),
    ("CONTENT_LENGTH", "$content_length $http_content_length"),
    ("SCRIPT_NAME", "$fastcgi_script_name $document_uri $uri"),
    ("PATH_INFO", "$document_uri $uri $fastcgi_path_info $path_info $fastcgi_script_name"),
    ("REQUEST_URI", "$request_uri"),
    ("DOCUMENT_URI", "$document_uri $uri"),
    ("DOCUMENT_ROOT", "$document_root $realpath_root"),
    ("SERVER_PROTOCOL", "$server_protocol"),
    ("REQUEST_SCHEME", "$scheme $http_x_forwarded_proto"),
    ("HTTPS", "$https on"),
    ("GATEWAY_INTERFACE", "CGI/1.1"),
    ("SERVER_SOFTWARE", "nginx/$nginx_version nginx"),
    ("REMOTE_ADDR", "$remote_addr $realip_remote_addr"),
    ("REMOTE_PORT", "$remote_port"),
    ("SERVER_ADDR", "$server_addr"),
    ("SERVER_PORT", "$server_port"),
    ("SERVER_NAME", "$server_name $host $http_host"),
    ("REDIRECT_STATUS", "200"),
    ("HTTP_HOST", "$host $http_host"),
    // Protection from httpoxy (CVE-2016-5385), which brisk has without a setting: it never sends this
    // variable.
    ("HTTP_PROXY", ""),
];

/// Names of the folder in `SCRIPT_FILENAME`.
const ROOTS: [&str; 2] = ["$document_root", "$realpath_root"];

/// Ends of `SCRIPT_FILENAME` that stand for the script that the path names.
const NAMED: [&str; 4] = ["$fastcgi_script_name", "$uri", "$document_uri", "/$fastcgi_script_name"];

/// Whether a name is that of a script of PHP, as nginx compares names.
pub(crate) fn is_script(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|suffix| suffix == "php")
}

impl Context<'_> {
    /// The table `cgi` of an upstream. `script` is the front controller, a path below the root.
    pub(crate) fn cgi(
        &self,
        protocol: Protocol,
        scope: &Scope<'_>,
        script: Option<&str>,
    ) -> Result<Keys, String> {
        let kind = protocol.cgi().unwrap_or_default();
        let mut keys = Keys::default();
        let mut params = Keys::default();
        let mut has_file = false;
        let mut path_info = false;
        for param in scope.all(&format!("{kind}_param")) {
            let (name, value) = (param.arg(0), param.arg(1));
            let same = SAME.iter().find(|(own, _)| *own == name);
            path_info |= name == "PATH_INFO" && matches!(value, "$fastcgi_path_info" | "$path_info");
            if kind == "fastcgi" && name == "SCRIPT_FILENAME" {
                has_file = true;
                self.script_file(scope, param, &mut keys, &mut params)?;
            } else if same.is_some_and(|(_, all)| all.split(' ').any(|own| own == value))
                || (kind == "scgi" && (name, value) == ("SCGI", "1"))
            {
                self.carried(param);
            } else if matches!(name, "REMOTE_USER" | "PATH_TRANSLATED") {
                self.different(param, "brisk sends no such variable");
            } else {
                self.param(scope, param, &mut params);
            }
        }
        let includes = ["fastcgi.conf", "fastcgi-php.conf"];
        let is_included = |file: &&Directive| includes.iter().any(|own| file.arg(0).ends_with(own));
        // These files set `SCRIPT_FILENAME`, but are built in or missing here, so no directive shows it.
        if kind == "fastcgi" && !has_file && scope.all("include").iter().any(is_included) {
            keys.set("root", self.root(scope)?);
            path_info |= scope.all("include").iter().any(|file| file.arg(0).ends_with("php.conf"));
        }
        if keys.get("root").is_some() {
            self.scripts(scope, script, path_info, &mut keys);
        }
        if kind == "fastcgi" {
            self.streamed(scope, &params, &mut keys);
        }
        if !params.is_empty() {
            keys.set("params", params.inline());
        }
        Ok(keys)
    }

    /// `stream_bodies`.
    fn streamed(&self, scope: &Scope<'_>, params: &Keys, keys: &mut Keys) {
        let Some(buffering) = scope.one("fastcgi_request_buffering") else { return };
        let has_script = keys.get("root").is_some() || params.get("SCRIPT_FILENAME").is_some();
        if buffering.arg(0) != "off" {
            self.carried(buffering);
        } else if has_script {
            // nginx would send it, and PHP would find an empty one.
            self.different(buffering, "a body of unknown length is gathered, because PHP reads no such body");
        } else {
            keys.set("stream_bodies", "true");
            self.carried(buffering);
        }
    }

    /// An entry of `params`.
    fn param(&self, scope: &Scope<'_>, param: &Directive, params: &mut Keys) {
        let mut value = param.arg(1).to_owned();
        if let Some(root) = scope.one("root") {
            // brisk has no variable for the folder, so its path is written.
            value = ROOTS.iter().fold(value, |value, name| value.replace(name, root.arg(0)));
        }
        match self.template(&value, &Values::default(), Use::Value) {
            Ok(text) => {
                params.set(param.arg(0), toml::text(&text));
                self.carried(param);
                self.note_user(scope, param, &text);
            }
            Err(reason) => {
                // A header of the client has the same name, and nginx replaces it.
                if param.arg(0).starts_with("HTTP_") {
                    params.set(param.arg(0), "\"\"");
                }
                self.missing(param, reason, "let the application do without the variable");
            }
        }
    }

    /// The folder of scripts that `SCRIPT_FILENAME` names, or the one script.
    fn script_file(
        &self,
        scope: &Scope<'_>,
        param: &Directive,
        keys: &mut Keys,
        params: &mut Keys,
    ) -> Result<(), String> {
        let value = param.arg(1);
        self.carried(param);
        if value == "$request_filename" {
            keys.set("root", self.root(scope)?);
            return Ok(());
        }
        if let Some(root) = NAMED.iter().find_map(|name| value.strip_suffix(name)) {
            let folder = if ROOTS.contains(&root) { self.root(scope)? } else { self.file(root) };
            if root.contains('$') && !ROOTS.contains(&root) {
                return Err("the folder of the scripts depends on a variable".to_owned());
            }
            keys.set("root", folder);
            return Ok(());
        }
        // One script for all paths: brisk looks for no other.
        let own = ROOTS.iter().find_map(|name| value.strip_prefix(name)).filter(|own| !own.contains('$'));
        let file = match own {
            Some(own) => format!("{}{own}\"", self.root(scope)?.trim_end_matches('"')),
            None if !value.contains('$') => self.file(value),
            None => return Err("the script depends on a variable".to_owned()),
        };
        let name =
            own.map_or_else(|| format!("/{}", value.rsplit('/').next().unwrap_or(value)), str::to_owned);
        params.set("SCRIPT_FILENAME", file);
        params.set("SCRIPT_NAME", toml::text(&name));
        Ok(())
    }

    /// The folder of `root`, as TOML.
    fn root(&self, scope: &Scope<'_>) -> Result<String, String> {
        let root =
            scope.all_of(&["root", "alias"]).1.first().copied().ok_or("there is no root for the scripts")?;
        if root.name == "alias" {
            return Err("scripts below an alias have another path than their name".to_owned());
        }
        if root.arg(0).contains('$') {
            return Err("the folder of the scripts depends on a variable".to_owned());
        }
        self.carried(root);
        Ok(self.file(root.arg(0).trim_end_matches('/')))
    }

    /// `script`, `index` and `path_info`.
    fn scripts(&self, scope: &Scope<'_>, script: Option<&str>, path_info: bool, keys: &mut Keys) {
        if let Some(script) = script {
            keys.set("script", toml::text(script.trim_start_matches('/')));
        }
        let pages = scope.all("index");
        let scripts = pages.iter().flat_map(|index| &index.args).filter(|page| is_script(page));
        let own = scope.one("fastcgi_index").map(|index| index.arg(0));
        // `index.php` is the default of brisk, and needs no key.
        if let Some(index) = scripts.map(String::as_str).next().or(own).filter(|index| *index != "index.php")
        {
            keys.set("index", toml::text(index));
        }
        let split = scope.one("fastcgi_split_path_info");
        for directive in [split, scope.one("fastcgi_index")].into_iter().flatten() {
            self.carried(directive);
        }
        if path_info && split.is_some_and(|split| split.arg(0).contains("php")) {
            keys.set("path_info", "true");
        }
    }
}
