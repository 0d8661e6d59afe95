//! Splits: a share of the visitors of a route uses another upstream group.

use std::rc::Rc;

use brisk_http::message::HeaderList;
use brisk_rules::{Bucket, Share, SplitCookie, SplitSettings};
use brisk_telemetry::RequestId;
use brisk_upstream::Group;
use http::HeaderValue;

/// An upstream group, and the path of its servers' URLs without a slash at its end.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) group: Rc<Group>,
    pub(crate) base: Box<str>,
}

/// The split of a route.
#[derive(Debug)]
pub(crate) struct Split {
    to: Destination,
    share: Share,
    cookie: SplitCookie,
}

impl Destination {
    pub(crate) fn new(group: Rc<Group>) -> Self {
        Self { base: group.state().settings().base_path().into(), group }
    }

    fn is_available(&self) -> bool {
        // One server suffices: the group itself chooses among its servers.
        self.group.servers().iter().any(|server| server.state().is_healthy())
    }
}

impl Split {
    /// The split to the servers of `group`.
    pub(crate) fn new(settings: &SplitSettings, group: Rc<Group>) -> Self {
        let cookie = SplitCookie::new(&settings.cookie);
        Self { to: Destination::new(group), share: settings.share, cookie }
    }

    /// The other group.
    pub(crate) fn group(&self) -> &Group {
        &self.to.group
    }

    /// The destination of a request, if it is not that of the route, and the cookie for a visitor without one. While no server
    /// of the split is available, all visitors use the destination of the route, and keep their buckets.
    pub(crate) fn choose(
        &self,
        headers: &HeaderList,
        id: RequestId,
    ) -> (Option<&Destination>, Option<Box<HeaderValue>>) {
        let known = self.cookie.read(headers);
        // Ids are uniformly distributed, so no other random number is needed.
        let bucket = known.unwrap_or_else(|| Bucket::of(id.0));
        let is_split = self.share.includes(bucket) && self.to.is_available();
        // Also for visitors of the other destination: after a change of the share, their bucket decides.
        let assignment = known.is_none().then(|| Box::new(self.cookie.assignment(bucket)));
        (is_split.then_some(&self.to), assignment)
    }
}
