//! Definition of the options of `brisk compress`.

use std::path::PathBuf;

use brisk_coding::Coding;
use clap::{Args, ValueEnum};

/// Arguments of `brisk compress`.
#[derive(Args, Debug)]
pub(crate) struct CompressArgs {
    /// Folder to compress: the `static` of a route
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Content codings, comma-separated
    #[arg(long, value_name = "CODINGS", value_delimiter = ',', default_value = "br,zstd,gzip")]
    coding: Vec<CodingName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CodingName {
    Br,
    Zstd,
    Gzip,
}

impl CompressArgs {
    /// Codings to write, without duplicates.
    pub(crate) fn codings(&self) -> Vec<Coding> {
        // Each once, also if it is given twice: two threads would otherwise write the same copy.
        let asked = |name: CodingName| self.coding.contains(&name);
        let all = [
            (CodingName::Br, Coding::Brotli),
            (CodingName::Zstd, Coding::Zstd),
            (CodingName::Gzip, Coding::Gzip),
        ];
        all.into_iter().filter(|(name, _)| asked(*name)).map(|(_, coding)| coding).collect()
    }
}
