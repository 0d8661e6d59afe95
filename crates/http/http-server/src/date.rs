//! Value of the `Date` header (RFC 9110 section 6.6.1), formatted once per tick of a worker's wheel.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use httpdate::HttpDate;

/// `Date` header of one worker, at most one tick of the worker's [`DeadlineWheel`](brisk_net::DeadlineWheel) old.
#[derive(Debug, Default)]
pub(crate) struct Date(RefCell<Written>);

#[derive(Debug, Default)]
struct Written {
    tick: Duration,
    text: String,
}

impl Date {
    /// Calls `use_it` with the date, formatted again only if `tick`, the time of the worker's wheel, has changed.
    pub(crate) fn with<T>(&self, tick: Duration, use_it: impl FnOnce(&str) -> T) -> T {
        let mut written = self.0.borrow_mut();
        // The first tick may be zero like the default, so an empty text is formatted in any case.
        if written.tick != tick || written.text.is_empty() {
            written.tick = tick;
            written.text.clear();
            let now = HttpDate::from(SystemTime::now());
            write!(written.text, "{now}").expect("a string takes all");
        }
        use_it(&written.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_anew_with_each_tick() {
        let date = Date::default();
        let first = date.with(Duration::ZERO, str::to_owned);
        let parsed = httpdate::parse_http_date(&first).expect("a date");
        assert!(SystemTime::now().duration_since(parsed).expect("no future") < Duration::from_secs(30));
        date.0.borrow_mut().text = "old".to_owned();
        assert_eq!(date.with(Duration::ZERO, str::to_owned), "old");
        assert_eq!(date.with(Duration::from_millis(100), str::len), first.len());
    }
}
