//! Limits: rates, requests at a time, sizes, pace, and compression.

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::geo::geo_networks;
use crate::nginx::scope::Scope;
use crate::nginx::variables::{Use, Values, only_variable};
use crate::toml::{self, Keys};

/// Limits of a scope: their names, and the networks that are excluded.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) names: Vec<String>,
    /// Networks that some of the limits exclude.
    pub(crate) exempt: Vec<String>,
    /// Names of the limits that exclude no network.
    pub(crate) strict: Vec<String>,
}

impl Context<'_> {
    /// `limit_req` and `limit_conn`, of the levels above `from`.
    pub(crate) fn limits(&self, scope: &Scope<'_>, from: usize) -> Option<Limits> {
        let is_set = |name| scope.level(name) > from;
        if !is_set("limit_req") && !is_set("limit_conn") {
            return None;
        }
        let mut limits = Limits::default();
        for limit in scope.all("limit_req") {
            let zone = limit.parameter("zone").unwrap_or_default().to_owned();
            self.limit(scope, limit, &zone, &mut limits);
        }
        for limit in scope.all("limit_conn") {
            self.limit(scope, limit, limit.arg(0), &mut limits);
        }
        Some(limits)
    }

    fn limit(&self, scope: &Scope<'_>, limit: &Directive, zone_name: &str, limits: &mut Limits) {
        let action = "write the limit as [limit.NAME] by hand";
        let Some(zone) = self.zones.get(zone_name) else {
            return self.missing(limit, format!("there is no zone {zone_name}"), action);
        };
        let mut keys = Keys::default();
        let is_rate = limit.name == "limit_req";
        if is_rate {
            let burst: u64 = limit.parameter("burst").and_then(|burst| burst.parse().ok()).unwrap_or(0);
            let rate = zone.parameter("rate").unwrap_or("1r/s").replace("r/", "/");
            keys.set("rate", toml::text(&format!("{rate} burst {}", burst.saturating_add(1))));
        } else {
            let Some(most) = toml::number(limit.arg(1)) else {
                return self.missing(limit, "the limit is not a number", action);
            };
            keys.set("concurrency", most);
        }
        let exempt = limits.exempt.len();
        match self.limit_key(zone.arg(0), limits) {
            Ok(key) if key == "{client.address}" => {}
            Ok(key) => keys.set("by", toml::text(&key)),
            Err(reason) => return self.missing(limit, reason, action),
        }
        let kind = if is_rate { "limit_req_status" } else { "limit_conn_status" };
        let status = scope.one(kind);
        if let Some(status) = status {
            self.carried(status);
        }
        let status = status.map_or("503", |status| status.arg(0));
        if toml::number(status).is_none() {
            return self.missing(limit, "the status is not a number", action);
        }
        if status != "429" {
            keys.set("status", status);
        }
        if let Some(dry) = scope.one(&format!("{}_dry_run", limit.name)).filter(|dry| dry.arg(0) == "on") {
            keys.set("dry_run", "true");
            self.carried(dry);
        }
        self.carried(zone);
        if is_rate && limit.parameter("burst").is_some() && !limit.has("nodelay") {
            self.different(limit, "brisk refuses requests beyond the burst and delays none");
        } else {
            self.carried(limit);
        }
        let name = self.named_table("limit", &toml::name(zone_name), &keys, limit);
        if limits.exempt.len() == exempt {
            limits.strict.push(name.clone());
        }
        limits.names.push(name);
    }

    /// The key of a limit. A `map` from a `geo` to the address excludes networks.
    fn limit_key(&self, key: &str, limits: &mut Limits) -> Result<String, String> {
        let exempting = only_variable(key).and_then(|name| self.maps.get(name)).and_then(|map| {
            let geo = self.geos.get(only_variable(map.arg(0))?)?;
            Some((*map, *geo))
        });
        let Some((map, geo)) = exempting else { return self.counted(key) };
        self.has_all_lines(map)?;
        if map.inner().iter().any(|line| line.name.starts_with('~')) {
            return Err("the map has expressions for the values of geo".to_owned());
        }
        let lines: Vec<_> = map.inner().iter().map(|line| (line.name.as_str(), line.arg(0))).collect();
        let result_of = |value: &str| {
            let own = lines
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(value))
                .or(lines.iter().find(|(key, _)| *key == "default"));
            own.map_or("", |(_, result)| *result)
        };
        let keys: Vec<_> =
            lines.iter().map(|(_, result)| *result).filter(|result| !result.is_empty()).collect();
        let [key] = keys.as_slice() else { return Err("the map has several keys".to_owned()) };
        let (networks, is_by_default_exempt) = geo_networks(geo, &|value| result_of(value).is_empty())?;
        if is_by_default_exempt {
            return Err("the limit is for listed networks only".to_owned());
        }
        for network in networks {
            if !limits.exempt.iter().any(|own| own == network) {
                limits.exempt.push(network.to_owned());
            }
        }
        self.carried_whole(map);
        self.carried_whole(geo);
        self.counted(key)
    }

    /// The key of requests for a text. The limits of brisk precede the verification of users, so such a key would always be empty.
    fn counted(&self, key: &str) -> Result<String, String> {
        let key = self.template(key, &Values::default(), Use::Value)?;
        if self.has_any(&key, &["{user}"]) {
            return Err("brisk counts requests before it verifies the user".to_owned());
        }
        Ok(key)
    }

    /// `body_size` and `bandwidth`, which only routes have.
    pub(crate) fn sizes(&self, scope: &Scope<'_>, values: &Values, keys: &mut Keys) {
        if let Some(size) = scope.one("client_max_body_size") {
            self.carried(size);
            let bytes = toml::bytes(size.arg(0));
            if bytes.is_none() {
                self.missing(size, "the size is not a number", "write body_size = \"10MiB\"");
            }
            if let Some(bytes) = bytes.filter(|bytes| Some(*bytes) != self.body_size.get()) {
                keys.set("body_size", if bytes == 0 { "\"none\"".to_owned() } else { toml::size(bytes) });
            }
        }
        // `set $limit_rate` precedes the directive.
        let set = values.set.get("limit_rate");
        let rate = scope.one("limit_rate");
        let Some(text) = set.cloned().or_else(|| Some(values.fill(rate?.arg(0)))) else { return };
        match toml::bytes(&text) {
            Some(0) => {}
            Some(bytes) => {
                let mut pace = Keys::default();
                pace.set("rate", toml::size(bytes.max(1024)));
                if let Some(after) = scope.one("limit_rate_after") {
                    self.carried(after);
                    pace.set("after", toml::size(toml::bytes(after.arg(0)).unwrap_or(0)));
                }
                keys.set("bandwidth", pace.inline());
            }
            None => {
                for line in rate.iter().chain(&scope.one("limit_rate_after")) {
                    let action = "write a route for each rate, with bandwidth";
                    self.missing(line, "the rate depends on a variable", action);
                }
            }
        }
        if let Some(rate) = rate {
            self.carried(rate);
        }
    }

    /// `compression`, of the levels above `from`.
    pub(crate) fn compression(&self, scope: &Scope<'_>, from: usize, keys: &mut Keys) {
        let names = ["zstd", "brotli", "gzip"];
        let parts = [
            "zstd",
            "zstd_types",
            "brotli",
            "brotli_types",
            "gzip",
            "gzip_types",
            "gzip_min_length",
            "gzip_comp_level",
        ];
        if parts.iter().all(|name| scope.level(name) <= from) {
            return;
        }
        let codings: Vec<_> = names.iter().filter(|name| scope.is_on(name)).copied().collect();
        for name in parts.iter().chain(&["brotli_comp_level", "zstd_comp_level", "gzip_vary", "gzip_proxied"])
        {
            scope.all(name).into_iter().for_each(|directive| self.carried(directive));
        }
        if codings.is_empty() {
            return keys.set("compression", "false");
        }
        let mut table = Keys::default();
        table.set(
            "codings",
            toml::list(codings.iter().map(|name| if *name == "brotli" { "br" } else { name })),
        );
        let types = codings.iter().find_map(|name| scope.one(&format!("{name}_types")));
        match types {
            Some(types) if types.has("*") => table.set("types", "[\"*/*\"]"),
            Some(types) => {
                let all = ["text/html"].into_iter().chain(types.args.iter().map(String::as_str));
                let mut unique: Vec<&str> = Vec::new();
                all.for_each(|kind| {
                    if !unique.contains(&kind) {
                        unique.push(kind);
                    }
                });
                self.typed(types, &unique, &mut table);
            }
            None => table.set("types", "[\"text/html\"]"),
        }
        let least =
            scope.one("gzip_min_length").and_then(|least| toml::bytes(least.arg(0))).unwrap_or(20).max(1);
        table.set("least", toml::size(least));
        if let Some(level) = scope.one("gzip_comp_level").filter(|_| codings.contains(&"gzip")) {
            match toml::number(level.arg(0)) {
                Some(number) => table.set("gzip_level", number),
                None => self.missing(level, "the level is not a number", "write gzip_level in compression"),
            }
        }
        keys.set("compression", table.inline());
    }

    /// Types that are compressed. A long list of texts is nearly that of brisk, which needs no key.
    fn typed(&self, types: &Directive, unique: &[&str], table: &mut Keys) {
        if unique.len() > 5 && unique.iter().all(|kind| is_text(kind)) {
            return self.different(
                types,
                "brisk compresses all text, JSON, XML, JavaScript and fonts without a list",
            );
        }
        table.set("types", toml::list(unique));
    }
}

fn is_text(kind: &str) -> bool {
    let parts = [
        "text/",
        "json",
        "xml",
        "javascript",
        "font",
        "svg",
        "icon",
        "bmp",
        "wasm",
        "manifest",
        "opentype",
        "eot",
        "ttf",
    ];
    parts.iter().any(|part| kind.contains(part))
}
