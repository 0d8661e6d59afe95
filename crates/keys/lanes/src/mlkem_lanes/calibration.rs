//! Cost of a batch on this processor: the number of encapsulations from which lanes are faster.

use std::sync::OnceLock;

use super::{Encapsulation, LANES, are_supported};
use crate::ec_lanes::best;

impl Encapsulation {
    /// From how many on lanes take less time than aws-lc does for them one by one; measured once, in about a
    /// millisecond. More than eight: lanes are never worth it. `None`: this processor has none.
    pub fn break_even() -> Option<usize> {
        static MEASURED: OnceLock<Option<usize>> = OnceLock::new();
        *MEASURED.get_or_init(|| are_supported().then(measure))
    }
}

fn measure() -> usize {
    let key = [0; super::KEY];
    let new = || Encapsulation::new(&key).expect("zeroes are coefficients");
    let mut encapsulations = [(); LANES].map(|()| new());
    let one = best(|| encapsulations[0].perform());
    (1..=LANES)
        .find(|fill| {
            let together = best(|| Encapsulation::perform_together(&mut encapsulations[..*fill]));
            together < one.saturating_mul(*fill as u32)
        })
        .unwrap_or(LANES + 1)
}
