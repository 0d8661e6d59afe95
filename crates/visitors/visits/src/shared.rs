//! State and messages shared by [`Visits`](crate::Visits) and the writer thread.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwap;
use crossbeam_channel::Sender;

use crate::experiment::{Definitions, ExperimentId};
use crate::figures::Figures;
use crate::pages::Pages;
use crate::sequential::Decision;
use crate::settings::Settings;

/// State of the store shared by the handle and the writer thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) definitions: Definitions,
    pub(crate) recorded: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Whether new visits are rejected.
    pub(crate) is_closed: AtomicBool,
    pub(crate) error: Mutex<Option<String>>,
    pub(crate) figures: Figures,
    pub(crate) pages: Pages,
    /// [`Decisions`] on the compared experiments that have been read from the database.
    pub(crate) decisions: ArcSwap<Decisions>,
}

/// Compared experiments, each with its decision if there is one.
pub(crate) type Decisions = HashMap<ExperimentId, Option<Decision>>;

/// Messages to the writer thread besides visits.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Many visits are queued.
    Gather,
    /// The experiments may have changed: update the decisions.
    Defined,
    /// Write all previous visits and reply whether they are in the database.
    Flush(Sender<bool>),
    /// Like [`Asked::Flush`], and end the thread.
    Close(Sender<bool>),
}
