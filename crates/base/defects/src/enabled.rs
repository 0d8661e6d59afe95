//! Defects of a program that was built for the chaos tests.

use std::env;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Defect;

/// The [`Defect`] of the process.
static CHOSEN: LazyLock<Option<Defect>> = LazyLock::new(|| {
    let name = env::var("BRISK_DEFECT").ok()?;
    Defect::ALL.into_iter().find(|defect| defect.name() == name)
});

/// Calls for the [`Defect`] of the process.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Whether the configuration was reloaded.
static IS_RELOADED: AtomicBool = AtomicBool::new(false);

/// Whether the process has the [`Defect`], and it is due at this call.
pub fn strikes(defect: Defect) -> bool {
    // Rare enough that most clients see nothing.
    let period = match defect {
        Defect::WrongByte | Defect::LostCounter => 20,
        Defect::OtherStream => 5,
        Defect::LeakedDescriptor | Defect::EndlessRequest => 1,
    };
    let may_begin = defect != Defect::WrongByte || IS_RELOADED.load(Ordering::Relaxed);
    *CHOSEN == Some(defect)
        && may_begin
        && CALLS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).is_multiple_of(period)
}

/// Notes a reload, after which [`Defect::WrongByte`] begins.
pub fn reloaded() {
    IS_RELOADED.store(true, Ordering::Relaxed);
}
