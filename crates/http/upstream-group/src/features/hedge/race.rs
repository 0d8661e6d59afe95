//! Two attempts of a request and their result.

use std::pin::{Pin, pin};

use futures_util::future::{Either, select};

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
        // A failure does not end the race: the other attempt is under way and may still succeed.
        Either::Left((Err(failure), second)) => match second.await {
            Ok(success) => (Ok(success), true, Some(failure)),
            // The failure of the first attempt, so that a hedged request fails for the reason that
            // it would have had alone.
            Err(other) => (Err(failure), false, Some(other)),
        },
    };
    Raced { result, is_second, other }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

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
