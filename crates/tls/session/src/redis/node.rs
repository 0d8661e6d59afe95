//! [`Node`], a server with data: connection attempts, and heartbeats while connected.

use std::{
    cell::RefCell,
    ops::RangeInclusive,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use redis::{Pipeline, Value};
use tokio::{
    sync::Notify,
    task::{AbortHandle, spawn_local},
    time,
};

use super::{
    link::Link,
    problem::{Area, Problem},
    sealing::Name,
    settings::RedisAddress,
    shared::Shared,
    slot::slot,
    used_sessions::tombstone,
};
use crate::rotation::seconds;

/// Interval of heartbeats while connected. The promotion of a server is noticed within this time.
const BEAT: Duration = Duration::from_secs(1);

/// Pauses between connection attempts; each failure doubles the pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Maximum number of marks per pipeline of [`Node::mark_spent`].
const SPENT_AT_ONCE: usize = 500;

/// A server and, if it is reachable, a connection to it. Connects again until it is stopped.
pub(super) struct Node {
    pub(super) address: RedisAddress,
    shared: Arc<Shared>,
    link: RefCell<Option<Rc<Link>>>,
    /// Slots of the cluster whose keys the server has.
    slots: RefCell<Vec<RangeInclusive<u16>>>,
    /// Notified whenever the connection ends.
    lost: Rc<Notify>,
    task: RefCell<Option<AbortHandle>>,
}

impl Node {
    /// Starts to connect to `address`. `lost` is notified whenever that fails or ends.
    pub(super) fn start(address: RedisAddress, shared: Arc<Shared>, lost: Rc<Notify>) -> Rc<Self> {
        let node = Rc::new(Self {
            address,
            shared,
            link: RefCell::default(),
            slots: RefCell::default(),
            lost,
            task: RefCell::default(),
        });
        let task = spawn_local(Rc::clone(&node).keep()).abort_handle();
        node.task.replace(Some(task));
        node
    }

    /// Replaces the slots whose keys the server has.
    pub(super) fn set_slots(&self, slots: Vec<RangeInclusive<u16>>) {
        self.slots.replace(slots);
    }

    /// The [`Link`], if there is one.
    pub(super) fn link(&self) -> Option<Rc<Link>> {
        self.link.borrow().clone()
    }

    /// Disconnects permanently.
    pub(super) fn stop(&self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.disconnect(Problem::closed());
        self.shared.problems.forget(&self.address);
    }

    async fn keep(self: Rc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(link) => {
                    self.shared.counters.connected.count();
                    self.shared.counters.connections.count();
                    self.link.replace(Some(Rc::clone(&link)));
                    if self.watch(&link).await {
                        pause = FIRST_PAUSE;
                    }
                    let problem = link.problem();
                    self.disconnect(problem.clone());
                    self.shared.problems.begin(&self.address, Area::Connection, problem);
                }
                Err(problem) => self.shared.problems.begin(&self.address, Area::Connection, problem),
            }
            // The server may have been replaced; the router queries Sentinels or the cluster now instead of at its next
            // poll.
            self.lost.notify_one();
            time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<Rc<Link>, Problem> {
        Link::open(&self.address, &self.shared.settings).await.map(Rc::new)
    }

    fn disconnect(&self, problem: Problem) {
        let Some(link) = self.link.take() else { return };
        link.end(problem);
        self.shared.counters.connections.sub(1);
        // Not while other nodes of a cluster are connected, since all have one breaker.
        if self.shared.counters.connections.get() == 0 {
            self.shared.breaker.open();
        }
    }

    /// Sends heartbeats until the [`Link`] ends: every [`BEAT`], or with growing pauses while the breaker is open. Returns
    /// whether any succeeded.
    async fn watch(&self, link: &Link) -> bool {
        let (mut pause, mut lived) = (FIRST_PAUSE, false);
        while self.beat(link).await {
            lived = true;
            // Created before the check, so that an opening between both is not missed.
            let opening = self.shared.breaker.opening();
            if !self.shared.breaker.is_closed() {
                tokio::select! {
                    () = time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                    () = link.ended() => {}
                }
                continue;
            }
            pause = FIRST_PAUSE;
            tokio::select! {
                () = time::sleep(BEAT) => {}
                () = opening => time::sleep(FIRST_PAUSE).await,
                () = link.ended() => {}
            }
        }
        lived
    }

    /// Sends one heartbeat. Returns `false` if it failed and the [`Link`] has ended.
    async fn beat(&self, link: &Link) -> bool {
        let (settings, problems) = (&self.shared.settings, &self.shared.problems);
        // Marks are sent first, so that no session is taken on a new link before them.
        if !self.mark_spent(link).await {
            link.end(Problem::silent(settings.connect_timeout));
            return false;
        }
        let started = Instant::now();
        let beat = match time::timeout(settings.connect_timeout, link.beat(settings.prefix.as_bytes())).await
        {
            Ok(Ok(beat)) if beat.is_replica => {
                link.end(Problem::replica());
                return false;
            }
            Ok(Ok(beat)) => beat,
            Ok(Err(())) => return false,
            Err(_) => {
                link.end(Problem::silent(settings.connect_timeout));
                return false;
            }
        };
        let took = started.elapsed();
        if took > settings.deadline {
            // A single slow heartbeat may be chance; while the breaker is closed, commands determine its state.
            if !self.shared.breaker.is_closed() {
                problems.begin(&self.address, Area::Connection, Problem::slow(took, settings.deadline));
            }
            return true;
        }
        if !self.shared.breaker.is_closed() && self.mark_spent(link).await {
            self.shared.breaker.close();
        }
        if beat.epoch.is_known() {
            problems.end(&self.address, Area::Connection);
        } else {
            problems.begin(&self.address, Area::Connection, Problem::anonymous());
        }
        true
    }

    /// Marks in Redis the sessions on this server that were spent while it was unreachable. Returns false if there was
    /// no reply. An error reply counts as done: a user without write access cannot take sessions either.
    async fn mark_spent(&self, link: &Link) -> bool {
        let (mut names, others): (Vec<_>, Vec<_>) =
            self.shared.used_sessions.take().into_iter().partition(|name| self.has(name));
        self.spend_again(others);
        while !names.is_empty() {
            let batch = names.len().min(SPENT_AT_ONCE);
            let mut pipeline = Pipeline::new();
            for name in &names[..batch] {
                pipeline.add_command(tombstone(&self.shared.key(name)));
            }
            let answers = time::timeout(self.shared.settings.connect_timeout, link.ask_all(&pipeline)).await;
            let Ok(Ok(answers)) = answers else {
                self.spend_again(names);
                return false;
            };
            if answers.iter().any(|answer| matches!(answer, Value::ServerError(_))) {
                self.spend_again(names);
                break;
            }
            names.drain(..batch);
        }
        true
    }

    fn has(&self, name: &Name) -> bool {
        let slot = slot(&self.shared.key(name));
        self.slots.borrow().iter().any(|slots| slots.contains(&slot))
    }

    fn spend_again(&self, names: Vec<Name>) {
        let now = seconds(SystemTime::now());
        for name in names {
            self.shared.used_sessions.add(name, now);
        }
    }
}
