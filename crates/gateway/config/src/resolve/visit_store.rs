//! `[visits]`: storage and retention of visits, and labels of networks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brisk_answer::settings::HostSettings;
use brisk_config_file::{KeyPath, Period, Size};
use brisk_visits::{Networks, Settings};

use super::context::Context;
use crate::raw;

/// Bytes of a table of networks.
const LARGEST_TABLE: usize = 64 << 20;

/// Bytes of a database at most.
const LARGEST_DATABASE: u64 = 1 << 40;

const DAY: Duration = Duration::from_hours(24);

/// Settings of the store of visits.
#[derive(Clone, Debug)]
pub struct VisitSettings {
    /// The folder of the database.
    pub folder: PathBuf,
    /// Settings that a reload can change.
    pub settings: Settings,
}

/// Resolves the store of visits; `None` if it is disabled.
pub(super) fn visits(
    raw: &raw::Visits,
    state_dir: Option<&Path>,
    hosts: &[HostSettings],
    context: &mut Context<'_>,
) -> Option<VisitSettings> {
    let path = KeyPath::of("visits");
    let default = Settings::default();
    let share = context.shared.findings.within(&path.key("share"), raw.share, default.share, &(0.0..=1.0));
    let keep = context.shared.findings.within(
        &path.key("keep"),
        raw.keep,
        Period(default.keep),
        &(Period(DAY)..=Period(400 * DAY)),
    );
    let max_size = context.shared.findings.within(
        &path.key("max_size"),
        raw.max_size,
        Size(default.max_bytes),
        &(Size(Settings::smallest(0))..=Size(LARGEST_DATABASE)),
    );
    let networks = raw.networks.as_ref().map(|file| networks(file, &path.key("networks"), context));
    // Behind the checks, so that a mistake shows before the store is switched on.
    if !raw.enabled.unwrap_or(false) {
        return None;
    }
    check_size(max_size, hosts, &path.key("max_size"), context);
    let folder = match (&raw.folder, state_dir) {
        (Some(folder), _) => context.shared.base.join(folder),
        (None, Some(state_dir)) => state_dir.join("visits"),
        (None, None) => {
            let message = "visits need a folder: write visits.folder = \"/var/lib/brisk/visits\"";
            context.shared.findings.incomplete(&path, message);
            return None;
        }
    };
    let networks = networks.unwrap_or_default();
    Some(VisitSettings {
        folder,
        settings: Settings { keep: keep.0, max_bytes: max_size.0, networks, share },
    })
}

/// Warns of a database too small for one day of measurements, which would be removed continually.
fn check_size(size: Size, hosts: &[HostSettings], path: &KeyPath, context: &mut Context<'_>) {
    let measured = hosts.iter().filter(|host| host.visits.is_some()).count();
    let smallest = Settings::smallest(measured);
    if size.0 < smallest {
        let smallest = Size(smallest.next_multiple_of(1 << 20));
        let message =
            format!("{size} may not hold a day of {measured} hosts with visits: write {smallest} or more");
        context.shared.findings.wrong(path, message);
    }
}

/// The table in `file`.
fn networks(file: &Path, path: &KeyPath, context: &mut Context<'_>) -> Arc<Networks> {
    let file = context.file(file);
    match read(&file).and_then(|text| Networks::parse(&text).map_err(|error| error.to_string())) {
        Ok(networks) => Arc::new(networks),
        Err(error) => {
            context.shared.findings.wrong(path, format!("{}: {error}", file.display()));
            Arc::default()
        }
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut content =
        brisk_secrets::read_at_most(file, LARGEST_TABLE + 1).map_err(|error| error.to_string())?;
    // One byte more than permitted was requested, so a longer table is refused instead of cut.
    if content.len() > LARGEST_TABLE {
        return Err(format!("has more than {} MiB", LARGEST_TABLE >> 20));
    }
    String::from_utf8(std::mem::take(&mut *content)).map_err(|_| "is not UTF-8 text".to_owned())
}
