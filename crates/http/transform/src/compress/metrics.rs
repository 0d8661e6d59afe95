//! Metrics of compression, for the whole process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_budget::{Budgets, Resource};
use brisk_coding::Coding;
use brisk_telemetry::metrics::{Collector, Encoder};

use super::{dictionaries, kept};

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// Coding of a compressed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Coding(Coding),
    /// `dcz`: zstd with a dictionary.
    WithDictionary,
}

impl Made {
    fn index(self) -> usize {
        match self {
            Self::Coding(coding) => coding.index(),
            Self::WithDictionary => Coding::ALL.len(),
        }
    }

    /// Name of the coding, such as `gzip` or `dcz`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Coding(coding) => coding.name(),
            Self::WithDictionary => "dcz",
        }
    }
}

static COUNTS: [Counts; Coding::ALL.len() + 1] = [const {
    Counts { answers: AtomicU64::new(0), bytes_in: AtomicU64::new(0), bytes_out: AtomicU64::new(0) }
}; Coding::ALL.len() + 1];

static COPIES_SENT: AtomicU64 = AtomicU64::new(0);

static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Pages for visitors from other sites that were padded, sent without compression as too long or slow, and over the limit.
static ARRIVALS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Counts a response compressed from `bytes_in` to `bytes_out`.
pub(super) fn compressed(made: Made, bytes_in: u64, bytes_out: u64) {
    let counts = &COUNTS[made.index()];
    counts.answers.fetch_add(1, Ordering::Relaxed);
    counts.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
    counts.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
}

/// Counts a response sent uncompressed because encoders have reached the limit of [`Resource::Encoders`].
pub(super) fn refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a page for a visitor from another site, compressed by `PaddedBody` from `bytes_in` to `bytes_out`.
pub(super) fn arrival_padded(bytes_in: u64, bytes_out: u64) {
    ARRIVALS[0].fetch_add(1, Ordering::Relaxed);
    compressed(Made::Coding(Coding::Gzip), bytes_in, bytes_out);
}

/// Counts a page for a visitor from another site that was too long or too slow for padding.
pub(super) fn arrival_stored() {
    ARRIVALS[1].fetch_add(1, Ordering::Relaxed);
}

/// Counts a page for a visitor from another site whose session or address had as many padded pages as it may.
pub(super) fn arrival_over_limit() {
    ARRIVALS[2].fetch_add(1, Ordering::Relaxed);
}

/// Counts a response served from a copy in memory.
pub(super) fn copy_sent() {
    COPIES_SENT.fetch_add(1, Ordering::Relaxed);
}

/// Writes the metrics of compression. `compression_memory` is that of encoders and decoders in the [`Budgets`].
#[derive(Clone, Debug)]
pub struct CompressionMetrics(pub Arc<Budgets>);

impl Collector for CompressionMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let all = || {
            let codings = Coding::ALL.into_iter().map(Made::Coding);
            codings.chain([Made::WithDictionary]).map(|made| (made.name(), &COUNTS[made.index()]))
        };
        let mut family = page.counter("compressed_answers", "Answers compressed, by coding.")?;
        for (name, counts) in all() {
            family.counter(&[("coding", name)], counts.answers.load(Ordering::Relaxed))?;
        }
        let mut family =
            page.bytes_counter("compression_input", "Bytes of answers before compression, by coding.")?;
        for (name, counts) in all() {
            family.counter(&[("coding", name)], counts.bytes_in.load(Ordering::Relaxed))?;
        }
        let mut family =
            page.bytes_counter("compression_output", "Bytes of answers after compression, by coding.")?;
        for (name, counts) in all() {
            family.counter(&[("coding", name)], counts.bytes_out.load(Ordering::Relaxed))?;
        }
        let mut family =
            page.bytes_gauge("compression_memory", "Memory of encoders and decoders in use, at most.")?;
        let coders = [Resource::Encoders, Resource::Decoders, Resource::WideDecoders];
        family.gauge(&[], coders.map(|resource| self.0.of(resource).held()).iter().sum::<u64>())?;
        let mut family =
            page.counter("compressed_copies_sent", "Answers that were compressed copies in memory.")?;
        family.counter(&[], COPIES_SENT.load(Ordering::Relaxed))?;
        let mut family = page.bytes_gauge("compressed_copies", "Compressed copies of files in memory.")?;
        family.gauge(&[], kept::held() as u64)?;
        let mut family =
            page.bytes_gauge("compression_dictionaries", "Answers kept as dictionaries for later ones.")?;
        family.gauge(&[], dictionaries::held() as u64)?;
        let mut family = page.counter(
            "compression_refusals",
            "Answers sent as they are because encoders took as much memory as they may.",
        )?;
        family.counter(&[], REFUSED.load(Ordering::Relaxed))?;
        let mut family = page.counter(
            "compression_arrivals",
            "Pages with secrets for visitors from other sites: padded, too long or slow for padding, or over the limit.",
        )?;
        for (result, count) in ["padded", "stored", "limit"].into_iter().zip(&ARRIVALS) {
            family.counter(&[("result", result)], count.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}
