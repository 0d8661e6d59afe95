//! Requests that wait for their responses behind another one on the same connection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use brisk_http::message::Response;
use brisk_http_connection::Connection;
use brisk_http_connection::interim::InterimReceivers;
use bytes::Bytes;
use http::Method;

use crate::head_watch::HeadWait;
use crate::http1::{Failure, Http1};
use brisk_upstream_group::metrics::{PipelineRepeat, UpstreamMetrics};

/// The requests behind the one that uses a connection, in the order of sending. On drop, they are sent again.
#[derive(Debug)]
pub(crate) struct Followers {
    queue: VecDeque<Rc<State>>,
    /// Methods of abandoned requests whose responses come first.
    abandoned: VecDeque<Method>,
    /// Whether the response to an abandoned request is being skipped.
    is_skipping: bool,
    metrics: Arc<UpstreamMetrics>,
}

/// A request in the queue of [`Followers`].
#[derive(Debug)]
struct State {
    turn: RefCell<Turn>,
    waker: RefCell<Option<Waker>>,
    method: Method,
}

#[derive(Debug, Default)]
enum Turn {
    #[default]
    Waiting,
    /// The response to the request is the next one on the connection.
    Reached(Box<Http1>),
    /// The response had arrived together with one before it.
    Answered(Response<()>, Bytes),
    /// The request has to be sent again.
    Again,
    /// The client no longer wants the response.
    Abandoned,
}

/// Result of [`Seat::turn`].
#[derive(Debug)]
pub(crate) enum Reached {
    /// The response is the next one on the connection.
    Connection(Box<Http1>),
    /// The response.
    Response(Response<()>, Bytes),
}

/// The claim of a request to its turn. If it is dropped, the response is skipped.
#[derive(Debug)]
pub(crate) struct Seat(Rc<State>);

impl Followers {
    pub(super) fn new(metrics: &Arc<UpstreamMetrics>) -> Self {
        Self {
            queue: VecDeque::new(),
            abandoned: VecDeque::new(),
            is_skipping: false,
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn add(&mut self, method: &Method) -> Seat {
        let state = State { turn: RefCell::default(), waker: RefCell::default(), method: method.clone() };
        let state = Rc::new(state);
        self.queue.push_back(Rc::clone(&state));
        Seat(state)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the method of the abandoned request whose response is next. The response before it, if any, is skipped.
    pub(crate) fn take_abandoned(&mut self) -> Option<Method> {
        let method = self.abandoned.pop_front();
        self.is_skipping = method.is_some();
        method
    }

    /// Sends the requests again.
    pub(crate) fn send_again(&mut self, reason: PipelineRepeat) {
        for state in self.queue.drain(..) {
            if state.set(Turn::Again) {
                self.metrics.pipeline_repeat(reason);
            }
        }
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        self.send_again(PipelineRepeat::Closed);
    }
}

/// Passes a connection, whose response has ended, to the request behind, after those whose responses have arrived. Returns
/// the connection if there is none.
pub(crate) fn pass(mut http1: Box<Http1>) -> Option<Box<Http1>> {
    while let Some(followers) = http1.followers_mut() {
        let Some(next) = followers.queue.pop_front() else {
            // Responses to abandoned requests would follow.
            if !followers.abandoned.is_empty() {
                return None;
            }
            http1.end_pipeline();
            break;
        };
        match next.turn.take() {
            Turn::Abandoned => followers.abandoned.push_back(next.method.clone()),
            _ if !followers.abandoned.is_empty() => {
                http1.begin_next();
                next.set(Turn::Reached(http1));
                return None;
            }
            _ => {
                let Some((response, body)) = http1.take_next(&next.method) else {
                    next.set(Turn::Reached(http1));
                    return None;
                };
                next.set(Turn::Answered(response, body));
            }
        }
    }
    Some(http1)
}

impl State {
    /// Ends the wait. Returns whether the request still waited.
    fn set(&self, turn: Turn) -> bool {
        if matches!(self.turn.take(), Turn::Abandoned) {
            // `take` has left `Waiting`, so the mark is restored.
            self.turn.replace(Turn::Abandoned);
            return false;
        }
        self.turn.replace(turn);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        true
    }
}

impl Seat {
    /// Waits for [`Reached::Connection`] or [`Reached::Response`]; `None` if the request has to be sent again.
    pub(crate) async fn turn(self) -> Option<Reached> {
        poll_fn(|context| match self.0.turn.take() {
            Turn::Reached(http1) => Poll::Ready(Some(Reached::Connection(http1))),
            Turn::Answered(response, body) => Poll::Ready(Some(Reached::Response(response, body))),
            Turn::Again => Poll::Ready(None),
            Turn::Waiting | Turn::Abandoned => {
                self.0.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Turn::Reached(http1) = self.0.turn.replace(Turn::Abandoned) {
            skip(http1, self.0.method.clone());
        }
    }
}

/// Passes on `http1`, whose next response belongs to an abandoned request with `method`.
fn skip(mut http1: Box<Http1>, method: Method) {
    if let Some(followers) = http1.followers_mut() {
        // A part of a response before may have been read: only the closing of the connection separates it from the next one.
        if followers.is_skipping {
            return;
        }
        // Those behind it may have been abandoned before.
        followers.abandoned.push_back(method);
    }
    // A connection with such a response at its end is closed.
    drop(pass(http1));
}

/// A connection whose request waits for the head of its response. If it is dropped, the response is skipped.
#[derive(Debug)]
pub(crate) struct Unanswered {
    http1: Option<Box<Http1>>,
    method: Method,
}

impl Unanswered {
    pub(crate) fn new(http1: Box<Http1>, method: &Method) -> Self {
        Self { http1: Some(http1), method: method.clone() }
    }

    /// Waits for the head of the response (see [`Http1::next_head`]). Returns the connection with it.
    pub(crate) async fn next_head(
        mut self,
        client: &Connection,
        wait: HeadWait<'_>,
        interims: InterimReceivers<'_>,
        is_first: bool,
    ) -> Result<(Box<Http1>, Response<()>), Failure> {
        let Self { http1: Some(http1), method } = &mut self else { return Err(Failure::of_neighbour()) };
        let answered = http1.next_head(method, client, wait, interims, is_first).await;
        match (self.http1.take(), answered) {
            (Some(http1), Ok(response)) => Ok((http1, response)),
            (_, Err(failure)) => Err(failure),
            (None, Ok(_)) => Err(Failure::of_neighbour()),
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(http1) = self.http1.take() {
            skip(http1, self.method.clone());
        }
    }
}
