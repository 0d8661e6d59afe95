//! `geo`: conditions and tables about networks.

use std::collections::BTreeMap;

use crate::directive::Directive;
use crate::nginx::access::{includes, network};
use crate::nginx::condition::{Condition, When, any_of};
use crate::nginx::context::Context;
use crate::nginx::variables::{Use, Values};
use crate::toml::{self, Keys};

impl Context<'_> {
    /// The variable `{map.NAME}` for the table of a `geo`.
    pub(crate) fn geo_table(&self, name: &str, geo: &Directive) -> Result<String, String> {
        let source = if geo.args.len() > 1 { geo.arg(0) } else { "$remote_addr" };
        let from = self.template(source, &Values::default(), Use::Value)?;
        let is_read = |include: &Directive| !self.report.borrow().is_missing(include.id);
        let keys = geo_keys(geo, &from, is_read)?;
        self.carried_whole(geo);
        let name = self.tables.borrow_mut().named("map", &toml::name(name), &keys, geo.comment());
        Ok(format!("{{map.{name}}}"))
    }

    /// The networks for which a `geo` has a true value, or a given one.
    pub(crate) fn geo_condition(
        &self,
        geo: &Directive,
        wanted: &dyn Fn(&str) -> bool,
        negated: bool,
    ) -> Result<Condition, String> {
        let (networks, flip) = geo_networks(geo, wanted)?;
        self.carried_whole(geo);
        let any = if networks.is_empty() {
            Vec::new()
        } else {
            vec![When::plain("networks", toml::list(networks))]
        };
        Ok(any_of(any, negated != flip))
    }
}

/// The keys of the table `[map.NAME]` for a `geo` in a text. `from` is the address.
fn geo_keys(geo: &Directive, from: &str, is_read: impl Fn(&Directive) -> bool) -> Result<Keys, String> {
    let (mut keys, mut lines) = (Keys::of("from", toml::text(from)), BTreeMap::new());
    for line in geo.inner() {
        // geo has no variables in its values.
        let value = toml::text(&line.arg(0).replace('{', "{{"));
        match line.name.as_str() {
            "default" => keys.set("default", value),
            "include" if is_read(line) => {}
            "include" => return Err("a file with lines of geo was not read".to_owned()),
            "proxy" | "proxy_recursive" => {
                return Err("geo has proxies of its own: use set_real_ip_from".to_owned());
            }
            "ranges" => return Err("geo with ranges is not read".to_owned()),
            "delete" => {
                lines.remove(&network(line.arg(0)).ok_or("a line to delete is no network")?);
            }
            name => {
                let network = network(name).ok_or_else(|| format!("{name} is no network"))?;
                lines.insert(network, format!("{} = {value}", toml::raw(name)));
            }
        }
    }
    if lines.is_empty() {
        return Err("geo has no networks".to_owned());
    }
    let lines: Vec<_> = lines.into_values().collect();
    keys.set("networks", format!("{{ {} }}", lines.join(", ")));
    Ok(keys)
}

/// The networks whose value differs from the default in being wanted, and whether the default is wanted.
pub(crate) fn geo_networks<'a>(
    geo: &'a Directive,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<(Vec<&'a str>, bool), String> {
    if geo.args.len() > 1 {
        return Err("geo looks up another address than that of the client".to_owned());
    }
    let mut by_default = "";
    let mut lines = BTreeMap::new();
    for line in geo.inner() {
        match line.name.as_str() {
            "default" => by_default = line.arg(0),
            "proxy" | "proxy_recursive" => {
                return Err("geo has proxies of its own: use set_real_ip_from".to_owned());
            }
            "ranges" | "include" | "delete" => return Err(format!("geo with {} is not read", line.name)),
            name => {
                let network = network(name).ok_or_else(|| format!("{name} is no network"))?;
                // The last of several lines for a network decides.
                lines.insert(network, (name, line.arg(0)));
            }
        }
    }
    let flip = wanted(by_default);
    let (mut networks, mut around) = (Vec::new(), None);
    for (network, (name, value)) in lines {
        if wanted(value) != flip {
            if !around.is_some_and(|outer| includes(outer, network)) {
                around = Some(network);
            }
            networks.push(name);
        } else if around.is_some_and(|outer| includes(outer, network)) {
            // The longest prefix decides in nginx, and a condition has one list of networks.
            return Err("networks of geo lie inside each other".to_owned());
        }
    }
    Ok((networks, flip))
}
