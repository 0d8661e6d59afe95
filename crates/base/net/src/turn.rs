//! Limit of the work on the bytes of one peer in one turn of a task.

use std::mem;
use std::task::{Context, Poll};

/// Bytes and frames of a peer that a loop has processed since its task last let others run.
///
/// Sockets limit the reads of a turn, but a read may contain thousands of frames, and each of them costs more than its bytes. A
/// loop over frames of a peer therefore calls [`take`](Self::take) for each and [`poll_more`](Self::poll_more) before the next.
/// The count may continue in the next turn if the loop has ended for another reason: it then lets others run early, once.
#[derive(Debug, Default)]
pub struct TurnLimit {
    bytes: usize,
    frames: usize,
}

impl TurnLimit {
    /// Maximum number of bytes in a turn, exceeded by the last frame at most.
    pub const BYTES: usize = 64 << 10;
    /// Maximum number of frames in a turn.
    pub const FRAMES: usize = 256;

    /// Counts a frame, or another piece of input, of `bytes` bytes as the peer sent them.
    pub fn take(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.frames += 1;
    }

    /// Whether the turn has reached [`BYTES`](Self::BYTES) or [`FRAMES`](Self::FRAMES).
    pub fn is_reached(&self) -> bool {
        self.bytes >= Self::BYTES || self.frames >= Self::FRAMES
    }

    /// [`Poll::Ready`] while the turn may go on. Otherwise the task is woken for another turn, which begins with this call.
    pub fn poll_more(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.is_reached() {
            return Poll::Ready(());
        }
        mem::take(self);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Begins another turn, without a wake.
    pub fn begin(&mut self) {
        mem::take(self);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_turn_ends_after_its_bytes_or_frames_and_wakes_its_task() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        let mut turn = TurnLimit::default();
        for (bytes, frames) in [(1, TurnLimit::FRAMES), (16 << 10, 4), (1 << 20, 1), (0, TurnLimit::FRAMES)] {
            let before = wakes.0.load(Ordering::Relaxed);
            for _ in 0..frames {
                assert!(turn.poll_more(&context).is_ready());
                turn.take(bytes);
            }
            assert!(turn.is_reached() && turn.poll_more(&context).is_pending());
            assert_eq!(wakes.0.load(Ordering::Relaxed), before + 1);
            assert!(!turn.is_reached() && turn.poll_more(&context).is_ready());
        }
    }
}
