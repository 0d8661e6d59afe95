//! Does a time depend on secrets? In the manner of dudect (Reparaz, Balasch and Verbauwhede, 2017): times of two classes of
//! secrets, taken in random order, are compared by Welch's t-test. For tests; `make check-timing` runs them.
//!
//! A test of time can only find a leak, not prove that there is none, and a busy machine makes it blind.

use std::time::Instant;

use aws_lc_rs::rand;

/// Name, extent and threshold of a comparison.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// Name of the secrets in the report.
    pub name: &'a str,
    /// Number of measurements, of both classes together.
    pub measurements: usize,
    /// Shares of the fastest times that are analysed separately: interruptions make a long tail without information.
    pub shares: &'a [f64],
    /// |t| from which on the test fails. With no leak it is above 4.5 once in 100,000 runs.
    pub leak: f64,
}

/// Secrets with an even index are of one class, the others of the other.
///
/// Each is copied to the same address before its time is taken: the address decides the contents of the caches and
/// conflicts between loads and stores, and must not distinguish the classes.
pub fn compare<T>(comparison: &Comparison<'_>, secrets: &mut [T], mut perform: impl FnMut(&T)) {
    let (place, secrets) = secrets.split_first_mut().expect("a secret");
    let mut coins = vec![0; comparison.measurements];
    rand::fill(&mut coins).expect("randomness");
    let mut times = [Vec::new(), Vec::new()];
    for coin in coins {
        let number = usize::from(coin) % secrets.len();
        std::mem::swap(place, &mut secrets[number]);
        let began = Instant::now();
        perform(place);
        times[number % 2].push(began.elapsed().as_secs_f64());
        std::mem::swap(place, &mut secrets[number]);
    }
    comparison.judge(&times);
}

impl Comparison<'_> {
    /// Prints t for each share, and panics if it shows that the classes differ.
    pub fn judge(&self, times: &[Vec<f64>; 2]) {
        let Self { name, measurements, shares, leak } = self;
        let mut all = times.concat();
        all.sort_by(f64::total_cmp);
        for share in *shares {
            let limit = all[((all.len() - 1) as f64 * share) as usize];
            let (t, percent) = (t_value(times, limit), share * 100.0);
            eprintln!("{name}: {measurements} measurements, fastest {percent:>3.0} %: t = {t:.2}");
            assert!(t.abs() < *leak, "the time depends on {name}");
        }
    }
}

/// Welch's t of the times up to `limit`.
fn t_value(times: &[Vec<f64>; 2], limit: f64) -> f64 {
    let [(mean, error), (other_mean, other_error)] = times.each_ref().map(|times| {
        let times: Vec<f64> = times.iter().copied().filter(|time| *time <= limit).collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (mean - other_mean) / (error + other_error).sqrt()
}
