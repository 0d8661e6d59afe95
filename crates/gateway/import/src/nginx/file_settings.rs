//! Settings of files: lists of folders, copies (`gzip_static`), media types and pages of folders.

use crate::nginx::cgi::is_script;
use crate::nginx::scope::Scope;
use crate::nginx::site::Site;
use crate::toml::{self, Keys};

impl<'a> Site<'_, 'a> {
    /// Settings of a route with files that `types`, `index` and others set.
    pub(crate) fn file_settings(&self, scope: &Scope<'a>, keys: &mut Keys) {
        if scope.is_on("autoindex") {
            keys.set("listing", "true");
        }
        let copies = ["gzip_static", "brotli_static", "zstd_static"];
        if copies.iter().any(|name| scope.is_on(name)) {
            keys.set("precompressed", "true");
        }
        let always = copies.iter().filter_map(|name| scope.one(name)).filter(|copy| copy.arg(0) == "always");
        for copy in always {
            self.context.missing(
                copy,
                "brisk sends a copy only beside its file",
                "keep the files beside the copies",
            );
        }
        if let Some(format) = scope.one("autoindex_format").filter(|format| format.arg(0) != "html") {
            self.context.missing(format, "lists of files are pages", "let the application form the list");
        }
        for directive in ["autoindex"].iter().chain(&copies).flat_map(|name| scope.all(name)) {
            if directive.arg(0) != "always" {
                self.context.carried(directive);
            }
        }
        self.context.types(scope, keys);
        self.pages(scope, keys);
    }

    /// `index`: names of the pages of folders. Scripts are those of `cgi`.
    fn pages(&self, scope: &Scope<'a>, keys: &mut Keys) {
        let name = scope.one("server_name").map_or("", |line| line.arg(0));
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
        let mut pages = Vec::new();
        for index in scope.all("index") {
            for page in index.args.iter().filter(|page| !is_script(page)) {
                let page = if is_name {
                    page.replace("${server_name}", name).replace("$server_name", name)
                } else {
                    page.clone()
                };
                if page.contains(['$', '/']) || page.starts_with('.') {
                    let detail = format!("{page} is left out: pages of brisk are files of the folder itself");
                    self.context.different(index, detail);
                } else if !pages.contains(&page) {
                    pages.push(page);
                }
            }
            self.context.carried(index);
        }
        // brisk has this page without a key.
        if !pages.is_empty() && pages != ["index.html"] {
            keys.set("index", toml::list(pages));
        }
    }
}
