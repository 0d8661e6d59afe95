//! Kernel settings of this machine that matter for TLS.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use brisk_report::Table;
use serde::Serialize;

use super::route;

/// Kernel settings; `None` if they cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// `net.ipv4.tcp_fastopen`, a bit set: `2` enables servers.
    pub fast_open: Option<u32>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u32>,
    /// `net.ipv4.tcp_notsent_lowat`, bytes.
    pub notsent_lowat: Option<u64>,
    /// `net.ipv4.tcp_congestion_control`.
    pub congestion: Option<String>,
    /// `net.ipv4.tcp_available_congestion_control`.
    pub congestion_available: Vec<String>,
    /// `net.ipv4.tcp_slow_start_after_idle`.
    pub slow_start_after_idle: Option<u32>,
    /// `initcwnd` of the default route; `None` for the kernel's default of 10, or if it is unknown.
    pub initcwnd: Option<u32>,
}

impl Machine {
    /// Settings of this machine. Reads files of the kernel and queries the default route.
    pub fn this() -> Self {
        Self { initcwnd: route::initcwnd(), ..Self::settings(Path::new("/proc/sys")) }
    }

    /// Settings in the files below `folder`.
    fn settings(folder: &Path) -> Self {
        let text = |name: &str| text(folder, name);
        Self {
            fast_open: number(text("net/ipv4/tcp_fastopen")),
            somaxconn: number(text("net/core/somaxconn")),
            notsent_lowat: number(text("net/ipv4/tcp_notsent_lowat")),
            congestion: text("net/ipv4/tcp_congestion_control"),
            congestion_available: text("net/ipv4/tcp_available_congestion_control")
                .map(|names| names.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            slow_start_after_idle: number(text("net/ipv4/tcp_slow_start_after_idle")),
            initcwnd: None,
        }
    }

    /// All settings as a table.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new("This machine").text("").text("");
        let mut row = |name: &str, value: Option<String>| {
            table.row([name.to_owned(), value.unwrap_or_else(|| "not known".to_owned())]);
        };
        row("tcp_fastopen", self.fast_open.map(|value| value.to_string()));
        row("somaxconn", self.somaxconn.map(|value| value.to_string()));
        row("tcp_notsent_lowat", self.notsent_lowat.map(|value| value.to_string()));
        row("tcp_congestion_control", self.congestion.clone());
        row("tcp_slow_start_after_idle", self.slow_start_after_idle.map(|value| value.to_string()));
        row(
            "initcwnd",
            Some(self.initcwnd.map_or_else(|| "10, the kernel's".to_owned(), |value| value.to_string())),
        );
        table
    }
}

fn text(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    Some(text.trim().to_owned())
}

fn number<T: FromStr>(text: Option<String>) -> Option<T> {
    text?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_the_kernels_files() {
        let ca = brisk_testkit::ca::TestCa::new();
        let folder = ca.folder().join("sys");
        for (name, value) in [
            ("net/ipv4/tcp_fastopen", "3\n"),
            ("net/core/somaxconn", "not a number\n"),
            ("net/ipv4/tcp_notsent_lowat", "4294967295\n"),
            ("net/ipv4/tcp_congestion_control", "bbr\n"),
            ("net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n"),
        ] {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder of the test");
            fs::write(file, value).expect("a file of the test");
        }
        let expected = Machine {
            fast_open: Some(3),
            notsent_lowat: Some(4_294_967_295),
            congestion: Some("bbr".to_owned()),
            congestion_available: ["reno", "cubic", "bbr"].map(str::to_owned).to_vec(),
            ..Machine::default()
        };
        assert_eq!(Machine::settings(&folder), expected);
    }
}
