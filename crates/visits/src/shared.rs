//! State and requests between the handle and the thread that writes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use crossbeam_channel::Sender;

use crate::experiment::{Definitions, ExperimentId};
use crate::figures::Figures;
use crate::sequential::Decision;
use crate::settings::Settings;

/// State of the store that the handle and the writing thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) definitions: Definitions,
    pub(crate) recorded: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Whether nothing is taken any more.
    pub(crate) is_closed: AtomicBool,
    pub(crate) error: Mutex<Option<String>>,
    pub(crate) figures: Figures,
    /// Of each experiment that is compared, with the decision if there is one; without those that the database was not asked for.
    pub(crate) decisions: ArcSwap<Decisions>,
}

/// Experiments that are compared, with the decision on each if there is one.
pub(crate) type Decisions = HashMap<ExperimentId, Option<Decision>>;

/// Requests to the writing thread, beside those to keep visits.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Many visits wait.
    Gather,
    /// The experiments may be others: look for decisions on them.
    Defined,
    /// Write all that came before; answer whether it is in the database.
    Flush(Sender<bool>),
    /// The same, and then the thread ends.
    Close(Sender<bool>),
}
