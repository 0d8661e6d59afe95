//! Second attempts of slow requests: their number and their results.

use std::cell::Cell;
use std::pin::{Pin, pin};

use futures_util::future::{Either, select};

/// Credit for one second request. [`HedgeCredit`] keeps ten times as much: a burst of ten.
const COST: u32 = 100;
const MOST: u32 = 10 * COST;

/// Credit of a worker for second requests: each request that may be hedged adds its percentage.
#[derive(Debug, Default)]
pub struct HedgeCredit(Cell<u32>);

impl HedgeCredit {
    /// Adds the credit of a request: `percent` of a second request.
    pub fn earn(&self, percent: u32) {
        self.0.set((self.0.get() + percent).min(MOST));
    }

    /// Takes the credit for a second request, if there is enough.
    pub fn spend(&self) -> bool {
        let left = self.0.get().checked_sub(COST);
        self.0.set(left.unwrap_or(self.0.get()));
        left.is_some()
    }
}

/// The result of two attempts.
#[derive(Debug)]
pub struct Raced<T, E> {
    /// The first success; without one, the failure of the first attempt.
    pub result: Result<T, E>,
    /// Whether the success is that of the second attempt.
    pub is_second: bool,
    /// The failure of the other attempt, if it failed before.
    pub other: Option<E>,
}

/// Awaits the first success of two attempts. Drops the other attempt, which cancels it.
pub async fn race<T, E>(
    first: Pin<&mut impl Future<Output = Result<T, E>>>,
    second: impl Future<Output = Result<T, E>>,
) -> Raced<T, E> {
    let (result, is_second, other) = match select(first, pin!(second)).await {
        Either::Left((Ok(success), _)) => (Ok(success), false, None),
        Either::Right((Ok(success), _)) => (Ok(success), true, None),
        Either::Right((Err(failure), first)) => (first.await, false, Some(failure)),
        Either::Left((Err(failure), second)) => match second.await {
            Ok(success) => (Ok(success), true, Some(failure)),
            Err(other) => (Err(failure), false, Some(other)),
        },
    };
    Raced { result, is_second, other }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn second_requests_are_a_share_of_all_with_a_bounded_burst() {
        let credit = HedgeCredit::default();
        assert!(!credit.spend(), "nothing is lent");
        let sent = (0..1000).filter(|_| {
            credit.earn(5);
            credit.spend()
        });
        assert_eq!(sent.count(), 50);
        (0..1000).for_each(|_| credit.earn(5));
        assert_eq!((0..100).filter(|_| credit.spend()).count(), 10);
    }
    async fn raced(
        first: impl Future<Output = Result<u8, u8>>,
        second: impl Future<Output = Result<u8, u8>>,
    ) -> (Result<u8, u8>, bool, Option<u8>) {
        let Raced { result, is_second, other } = race(pin!(first), second).await;
        (result, is_second, other)
    }

    #[tokio::test]
    async fn the_first_success_is_the_result_and_failures_are_those_of_the_first_attempt() {
        assert_eq!(raced(ready(Ok(1)), pending()).await, (Ok(1), false, None));
        assert_eq!(raced(pending(), ready(Ok(2))).await, (Ok(2), true, None));
        assert_eq!(raced(ready(Err(1)), ready(Ok(2))).await, (Ok(2), true, Some(1)));
        assert_eq!(raced(ready(Err(1)), ready(Err(2))).await, (Err(1), false, Some(2)));
        let late = async {
            tokio::task::yield_now().await;
            Ok(1)
        };
        assert_eq!(raced(late, ready(Err(2))).await, (Ok(1), false, Some(2)));
    }
}
