//! `brisk mark`: marks a deployment in the charts of visits.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use brisk_config::Running;

use crate::args::MarkArgs;

/// Adds the mark to the store of visits of the configuration.
pub(crate) fn run(arguments: &MarkArgs) -> anyhow::Result<()> {
    let resolved = brisk_config::check(&arguments.config, &Running::default())?;
    let Some(visits) = &resolved.visits else {
        bail!("{}: visits are not stored: write [visits] enabled = true", arguments.config.display());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs().cast_signed());
    let folder = &visits.folder;
    let added = arguments.name.add_to(folder, now);
    added.map_err(|error| anyhow!("cannot mark the deployment in {}: {error}", folder.display()))
}
