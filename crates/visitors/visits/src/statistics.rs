//! Medians and shifts between groups, with distribution-free intervals.

/// Distribution function of the standard normal distribution, with an error of at most 1e-7 (Abramowitz and Stegun
/// 7.1.26).
pub(crate) fn normal_below(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail = series.iter().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp();
    if z > 0.0 { 1.0 - tail / 2.0 } else { tail / 2.0 }
}

/// The `z` that the absolute value of a standard normal variable exceeds with probability `alpha`.
pub(crate) fn two_sided(alpha: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    // 60 halvings of 40 reach the precision of `f64`.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        // The series returns 0 above some z; the lower bound of the true tail replaces it there.
        let tail = (2.0 * normal_below(-middle)).max((-middle * middle / 2.0).exp() / (1.0 + middle) / 2.0);
        if tail > alpha { low = middle } else { high = middle }
    }
    high
}

/// Estimate of a value with its interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

impl Estimate {
    /// Whether the interval is bounded on both sides and does not contain zero.
    pub fn excludes_zero(&self) -> bool {
        self.low.is_finite() && self.high.is_finite() && (self.low > 0.0 || self.high < 0.0)
    }
}

/// Median of weighted values with its interval from order statistics: the ranks between which the median lies by the
/// binomial distribution, for the effective sample size of the weights (Kish). `None` for fewer than six values.
pub(crate) fn median(values: &mut [(f64, f64)], z: f64) -> Option<Estimate> {
    let (sum, squares) = values
        .iter()
        .fold((0.0, 0.0), |(sum, squares), (_, weight)| (sum + weight, squares + weight * weight));
    let count = sum * sum / squares;
    if values.len() < 6 || count.is_nan() {
        return None;
    }
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // One rank more on each side, because ranks are whole numbers.
    let spread = (z * count.sqrt() / 2.0 + 1.0) / count;
    let bounds = [0.5 - spread, 0.5, 0.5 + spread].map(|share| share * sum);
    let [mut low, mut value] = [None; 2];
    let mut below = 0.0;
    for (at, weight) in values.iter() {
        below += weight;
        if low.is_none() && below >= bounds[0] {
            low = Some(*at);
        }
        if value.is_none() && below >= bounds[1] {
            value = Some(*at);
        }
        if below >= bounds[2] {
            return Some(Estimate { value: value?, low: low?, high: *at });
        }
    }
    Some(Estimate { value: value?, low: low?, high: values.last()?.0 })
}

/// Values of two groups that agree in all confounders.
#[derive(Debug, Default)]
pub(crate) struct Stratum {
    /// Values of the first group.
    pub(crate) first: Vec<f64>,
    /// Values of the second group.
    pub(crate) second: Vec<f64>,
    /// Visits that each value represents.
    pub(crate) each: f64,
}

/// `count` unweighted values with the distribution of weighted `values`, taken at even ranks. Sorts `values`.
pub(crate) fn resampled(values: &mut [(f64, f64)], count: usize) -> Vec<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let step = values.iter().map(|(_, weight)| weight).sum::<f64>() / count as f64;
    let (mut drawn, mut below) = (Vec::with_capacity(count), 0.0);
    for (value, weight) in values {
        below += *weight;
        while drawn.len() < count && (drawn.len() as f64 + 0.5) * step < below {
            drawn.push(*value);
        }
    }
    drawn
}

/// Estimated shift of the first groups relative to the second, within strata: the shift at which van Elteren's
/// statistic is zero (for one stratum the Hodges-Lehmann estimate), with the shifts that the statistic does not
/// exclude as interval (van Elteren 1960; Hodges and Lehmann 1963). The variance is the greater of the one under no
/// difference and the one from placements (`DeLong` 1988), which is valid if the groups differ in spread. A stratum
/// is weighted by the visits that its values represent. A bound is infinite if there are too few values. `None` if no
/// stratum has both groups.
pub(crate) fn shift(mut strata: Vec<Stratum>, z: f64) -> Option<Estimate> {
    strata.retain(|stratum| !stratum.first.is_empty() && !stratum.second.is_empty());
    for stratum in &mut strata {
        stratum.first.sort_unstable_by(f64::total_cmp);
        stratum.second.sort_unstable_by(f64::total_cmp);
    }
    let bounds = strata.iter().flat_map(|stratum| {
        let (first, second) = (&stratum.first, &stratum.second);
        [first[0] - second[second.len() - 1], first[first.len() - 1] - second[0]]
    });
    let (least, most) =
        bounds.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)));
    if !(least.is_finite() && most.is_finite()) {
        return None;
    }
    let solve = |excess: f64| {
        let (mut low, mut high) = (least, most);
        // 40 halvings divide the range by 10^12, far below the precision of the measurements.
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if statistic(&strata, middle) > excess { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    };
    let value = solve(0.0);
    let reach = z * variance(&strata, value).sqrt();
    // The statistic changes only at differences of values: beyond the outermost it is at its extremes.
    let low = if statistic(&strata, least - 1.0) > reach { solve(reach) } else { f64::NEG_INFINITY };
    let high = if statistic(&strata, most + 1.0) < -reach { solve(-reach) } else { f64::INFINITY };
    Some(Estimate { value, low, high })
}

fn weight(stratum: &Stratum) -> f64 {
    stratum.each / (stratum.first.len() + stratum.second.len() + 1) as f64
}

/// Weighted sum over strata of the number of pairs in which the first value, minus `shift`, is greater, minus half of
/// all pairs.
fn statistic(strata: &[Stratum], shift: f64) -> f64 {
    let excess = |stratum: &Stratum| {
        let half = (stratum.first.len() * stratum.second.len()) as f64 / 2.0;
        placements(&stratum.first, &stratum.second, shift).sum::<f64>() - half
    };
    strata.iter().map(|stratum| weight(stratum) * excess(stratum)).sum()
}

/// For each of the sorted `values`, the number of sorted `others` that it exceeds by more than `shift`; ties count
/// half.
fn placements<'a>(values: &'a [f64], others: &'a [f64], shift: f64) -> impl Iterator<Item = f64> + 'a {
    // Both lists are sorted, so the positions only advance: one pass instead of a search for each value.
    let (mut below, mut up_to) = (0, 0);
    values.iter().map(move |value| {
        let at = value - shift;
        while others.get(below).is_some_and(|other| *other < at) {
            below += 1;
        }
        up_to = up_to.max(below);
        while others.get(up_to).is_some_and(|other| *other <= at) {
            up_to += 1;
        }
        f64::midpoint(below as f64, up_to as f64)
    })
}

fn variance(strata: &[Stratum], shift: f64) -> f64 {
    let (mut equal, mut placed) = (0.0, 0.0);
    for stratum in strata {
        let weight = weight(stratum);
        let (first, second) = (stratum.first.len() as f64, stratum.second.len() as f64);
        equal += weight * weight * first * second * (first + second + 1.0) / 12.0;
        let of_first = placements(&stratum.first, &stratum.second, shift);
        let of_second = placements(&stratum.second, &stratum.first, -shift);
        placed += weight * weight * (first * spread(of_first, first) + second * spread(of_second, second));
    }
    equal.max(placed)
}

/// Variance of `count` values; 0 for a single one.
fn spread(values: impl Iterator<Item = f64>, count: f64) -> f64 {
    let (sum, squares) =
        values.fold((0.0, 0.0), |(sum, squares), value| (sum + value, squares + value * value));
    // Rounding can make the difference of two large sums negative.
    if count > 1.0 { ((squares - sum * sum / count) / (count - 1.0)).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A time with a long tail, as times to the first byte have.
    fn time(random: &mut Random) -> f64 {
        let normal = (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
        100.0 * (0.6 * normal).exp()
    }

    #[test]
    fn normal_quantiles_are_those_of_tables() {
        for (alpha, z) in [(0.05, 1.959_96), (0.01, 2.575_83), (0.001, 3.290_53), (0.000_1, 3.890_59)] {
            assert!((two_sided(alpha) - z).abs() < 0.001, "{alpha}: {}", two_sided(alpha));
        }
        assert!((6.0..8.0).contains(&two_sided(1e-9)), "{}", two_sided(1e-9));
    }

    #[test]
    fn intervals_of_medians_hold_them_as_often_as_they_say() {
        let mut random = Random::seeded(1);
        for weighted in [false, true] {
            let mut held = 0;
            for _ in 0..1_000 {
                let mut values: Vec<_> = (0..101)
                    .map(|_| {
                        (time(&mut random), if weighted { [1.0, 3.0][random.below(2) as usize] } else { 1.0 })
                    })
                    .collect();
                let found = median(&mut values, 1.96).unwrap();
                held += u32::from(found.low <= 100.0 && found.high >= 100.0);
            }
            assert!((930..=990).contains(&held), "{held} of 1000");
        }
        assert_eq!(median(&mut [(1.0, 1.0); 5], 1.96), None);
        assert_eq!(median(&mut [(1.0, 0.0); 9], 1.96), None);
    }

    #[test]
    fn shifts_are_found_within_strata() {
        let mut random = Random::seeded(2);
        let (mut held, mut claimed) = (0, 0);
        for _ in 0..300 {
            let mut strata = Vec::new();
            for number in 0_u32..6 {
                // Groups of unlike sizes in strata that are far from one another.
                let level = f64::from(number) * 500.0;
                let sizes = [20 + 60 * number, 380 - 60 * number];
                let [first, second] =
                    sizes.map(|size| (0..size).map(|_| level + time(&mut random)).collect::<Vec<_>>());
                strata.push(Stratum { first, second, each: 1.0 });
            }
            let none = shift(strata.iter().map(copied).collect(), 1.96).unwrap();
            claimed += u32::from(none.excludes_zero());
            for value in strata.iter_mut().flat_map(|stratum| &mut stratum.first) {
                *value -= 80.0;
            }
            let found = shift(strata, 1.96).unwrap();
            assert!(found.high < -60.0, "{found:?}");
            held += u32::from(found.low <= -80.0 && found.high >= -80.0);
        }
        assert!(held >= 276, "{held} of 300 hold the shift");
        assert!(claimed <= 27, "{claimed} of 300 claim one where there is none");
    }

    #[test]
    fn groups_that_spread_differently_are_no_shift() {
        let mut random = Random::seeded(3);
        let mut claimed = 0;
        for _ in 0..300 {
            let uniform = |random: &mut Random, width: f64| (random.unit() - 0.5) * width;
            let first = (0..400).map(|_| uniform(&mut random, 1.0)).collect();
            let second = (0..40).map(|_| uniform(&mut random, 100.0)).collect();
            claimed +=
                u32::from(shift(vec![Stratum { first, second, each: 1.0 }], 1.96).unwrap().excludes_zero());
        }
        assert!(claimed <= 30, "{claimed} of 300");
    }

    #[test]
    fn groups_apart_have_no_shift() {
        assert_eq!(shift(vec![], 1.96), None);
        assert_eq!(shift(vec![Stratum { first: vec![1.0], second: vec![], each: 1.0 }], 1.96), None);
    }

    fn copied(stratum: &Stratum) -> Stratum {
        Stratum { first: stratum.first.clone(), second: stratum.second.clone(), each: stratum.each }
    }

    #[test]
    fn thin_strata_claim_nothing() {
        let mut random = Random::seeded(6);
        let (mut claimed, mut unbounded) = (0, 0);
        for _ in 0..300 {
            let [first, second] = [1, 19].map(|size| (0..size).map(|_| time(&mut random)).collect());
            let found = shift(vec![Stratum { first, second, each: 1.0 }], 2.9).unwrap();
            claimed += u32::from(found.excludes_zero());
            unbounded += u32::from(found.low.is_infinite() || found.high.is_infinite());
        }
        assert_eq!((claimed, unbounded), (0, 300));
    }

    #[test]
    fn a_stratum_counts_by_its_visits() {
        let mut random = Random::seeded(8);
        let mut stratum = |saved: f64, each| {
            let first = (0..200).map(|_| time(&mut random)).collect();
            let second = (0..200).map(|_| time(&mut random) + saved).collect();
            Stratum { first, second, each }
        };
        let mut strata: Vec<_> = (0..20).map(|_| stratum(500.0, 1.0)).collect();
        strata.push(stratum(80.0, 2_000.0));
        let found = shift(strata, 1.96).unwrap();
        assert!((found.value + 80.0).abs() < 25.0, "{found:?}");
    }

    #[test]
    fn resampled_values_are_distributed_as_the_weighted() {
        let drawn = resampled(&mut [(3.0, 1.0), (1.0, 6.0), (2.0, 3.0)], 100);
        let counts =
            [1.0, 2.0, 3.0].map(|value: f64| drawn.iter().filter(|at| (**at - value).abs() < 0.5).count());
        assert_eq!(counts, [60, 30, 10]);
        assert!(resampled(&mut [], 10).is_empty());
    }
}
