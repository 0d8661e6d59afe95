//! The start of the random number generator.

use std::thread;

use aws_lc_rs::rand;

/// Starts the random number generator of the process on a thread of its own. AWS-LC measures the jitter of the processor for this,
/// which takes a tenth of a second or more; a caller that needs a random number meanwhile waits.
pub fn prepare_randomness() {
    // Without the thread or the number, the first caller starts the generator, and reports a failure.
    let _ = thread::Builder::new().name("randomness".to_owned()).spawn(|| rand::fill(&mut [0]));
}
