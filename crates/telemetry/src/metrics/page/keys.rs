//! Operations on private keys, and the engine that performs them.

use std::fmt;
use std::sync::Arc;

use super::Encoder;
use crate::metrics::figures::{BatchGain, GpuFigures, KeyFigures};
use crate::metrics::histogram::Totals;
use crate::metrics::series::KeySeries;

pub(super) fn operations(page: &mut Encoder<'_, '_>, all: &[Arc<KeySeries>]) -> fmt::Result {
    let mut family =
        page.counter("key_operations", "Private-key operations, by engine, algorithm and outcome.")?;
    for series in all {
        for (outcome, count) in series.outcomes().filter(|(_, count)| *count > 0) {
            let labels =
                [("engine", series.engine), ("algorithm", series.algorithm), ("outcome", outcome.name())];
            family.counter(&labels, count)?;
        }
    }
    let mut family =
        page.seconds("key_operation_wait", "Duration of a key operation without its computation.")?;
    for series in all {
        family.histogram(&labels(series), &Totals::of([&series.wait]))?;
    }
    let mut family =
        page.seconds("key_operation_compute", "Duration of the computation of a key operation.")?;
    for series in all {
        let totals = Totals::of([&series.compute]);
        if totals.count() > 0 {
            family.histogram(&labels(series), &totals)?;
        }
    }
    Ok(())
}

fn labels(series: &KeySeries) -> [(&'static str, &'static str); 2] {
    [("engine", series.engine), ("algorithm", series.algorithm)]
}

pub(super) fn engine(page: &mut Encoder<'_, '_>, figures: &KeyFigures) -> fmt::Result {
    let mut family = page.gauge("key_queue_length", "Key operations in the queue.")?;
    family.gauge(&[], figures.queue_length)?;
    let mut family = page.counter(
        "key_batch_operations",
        "Key operations performed by the engine's threads, by size of the batch.",
    )?;
    for (size, count) in ["1", "2", "3", "4"].into_iter().zip(figures.by_batch) {
        family.counter(&[("size", size)], count)?;
    }
    let mut family =
        page.counter("key_faults", "Results of batches that failed verification and were discarded.")?;
    family.counter(&[], figures.faults + figures.gpu.map_or(0, |gpu| gpu.faults))?;
    let mut family = page.gauge(
        "key_batch_gain",
        "Throughput of full batches relative to single operations, measured on this machine.",
    )?;
    for BatchGain { bits, engine, gain } in &figures.batch_gains {
        family.gauge(&[("engine", engine), ("bits", &bits.to_string())], *gain)?;
    }
    figures.gpu.map_or(Ok(()), |gpu| self::gpu(page, &gpu))
}

fn gpu(page: &mut Encoder<'_, '_>, figures: &GpuFigures) -> fmt::Result {
    let mut family = page.gauge("key_gpu_pending", "Key operations queued for or running on the GPU.")?;
    family.gauge(&[], figures.pending)?;
    let mut family =
        page.counter("key_gpu_launches", "Kernel launches on the GPU, each for a batch of key operations.")?;
    family.counter(&[], figures.launches)?;
    let mut family = page
        .counter("key_gpu_taken_over", "Key operations that the processor performed in place of the GPU.")?;
    family.counter(&[], figures.taken_over)?;
    let mut family = page.gauge("key_gpu_lost", "1 after the GPU has failed, otherwise 0.")?;
    family.gauge(&[], u64::from(figures.is_lost))
}
