//! Proxies of HAProxy: `frontend`, `backend` and `listen` with the settings of their `defaults`.

use std::collections::BTreeMap;

use crate::directive::Directive;

/// A proxy with its own lines and the ones of its `defaults`.
#[derive(Clone, Debug)]
pub(crate) struct Proxy<'a> {
    pub(crate) directive: &'a Directive,
    defaults: &'a [Directive],
}

impl<'a> Proxy<'a> {
    /// The name; HAProxy accepts any text without spaces.
    pub(crate) fn name(&self) -> &'a str {
        self.directive.args.first().map_or("", String::as_str)
    }

    /// Whether it has addresses: `frontend` and `listen`.
    pub(crate) fn is_frontend(&self) -> bool {
        self.directive.name != "backend"
    }

    /// Whether it has servers: `backend` and `listen`.
    pub(crate) fn is_backend(&self) -> bool {
        self.directive.name != "frontend"
    }

    /// All lines: the ones of `defaults` before its own.
    pub(crate) fn lines(&self) -> impl DoubleEndedIterator<Item = &'a Directive> + use<'a> {
        self.defaults.iter().chain(self.directive.inner())
    }

    /// All lines with this name.
    pub(crate) fn all(&self, name: &'static str) -> impl DoubleEndedIterator<Item = &'a Directive> + use<'a> {
        self.lines().filter(move |line| line.name == name)
    }

    /// The last line with this `name` and, if it is not empty, this `first` argument: `timeout` with `client`.
    pub(crate) fn one(&self, name: &'static str, first: &str) -> Option<&'a Directive> {
        // The last line decides, so own lines are stronger than those of `defaults`.
        self.all(name).rfind(|line| first.is_empty() || line.arg(0) == first)
    }

    /// The line of an `option` that is on; a later `no option` with this name switches it off.
    pub(crate) fn option(&self, name: &str) -> Option<&'a Directive> {
        let is_own = |line: &&Directive| match line.name.as_str() {
            "option" => line.arg(0) == name,
            "no" => line.arg(0) == "option" && line.arg(1) == name,
            _ => false,
        };
        self.lines().rfind(is_own).filter(|line| line.name == "option")
    }

    /// Whether it forwards bytes. Without `mode`, HAProxy does so too.
    pub(crate) fn is_tcp(&self) -> bool {
        self.one("mode", "").is_none_or(|mode| mode.arg(0) != "http")
    }

    /// Whether the operator has switched it off: the last of `disabled` and `enabled` decides.
    pub(crate) fn is_disabled(&self) -> bool {
        self.lines()
            .rfind(|line| matches!(&*line.name, "disabled" | "enabled"))
            .is_some_and(|line| line.name == "disabled")
    }
}

/// The proxies of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Proxies<'a> {
    pub(crate) all: Vec<Proxy<'a>>,
    backends: BTreeMap<&'a str, usize>,
}

impl<'a> Proxies<'a> {
    /// Gathers the proxies: each has the `defaults` that its `from` names, or else the last ones before it. `None` if their
    /// `defaults` together are too long.
    pub(crate) fn new(sections: &'a [Directive]) -> Option<Self> {
        let mut proxies = Self::default();
        let mut last: &[Directive] = &[];
        let mut named: BTreeMap<&str, &[Directive]> = BTreeMap::new();
        let mut size = 0;
        for section in sections {
            let from = section.args.iter().position(|arg| arg == "from");
            let from = from.and_then(|at| named.get(section.arg(at + 1)).copied());
            match section.name.as_str() {
                "defaults" => {
                    last = section.inner();
                    let name = section.arg(0);
                    if !name.is_empty() && name != "from" {
                        named.insert(name, last);
                    }
                }
                "frontend" | "backend" | "listen" => {
                    let defaults = from.unwrap_or(last);
                    // The lines of shared `defaults` are read again for each proxy.
                    size += defaults.len();
                    if size > 5_000_000 {
                        return None;
                    }
                    let proxy = Proxy { directive: section, defaults };
                    if proxy.is_backend() {
                        // The first backend of a name keeps it.
                        proxies.backends.entry(proxy.name()).or_insert(proxies.all.len());
                    }
                    proxies.all.push(proxy);
                }
                _ => {}
            }
        }
        Some(proxies)
    }

    /// The backend or `listen` with this name, with its number.
    pub(crate) fn backend(&self, name: &str) -> Option<(usize, &Proxy<'a>)> {
        let index = *self.backends.get(name)?;
        Some((index, &self.all[index]))
    }
}
