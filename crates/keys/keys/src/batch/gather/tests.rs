use super::*;

const CLASS: Class = Class::Rsa2048;
const TOGETHER: usize = 4;
/// What an operation of the class is assumed to take alone.
const ALONE: u64 = 200;

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A gather of numbers, and a clock that the test moves.
struct Scene {
    gather: Gather<u32>,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self { gather: Gather::new(), now: Instant::now() };
        scene.gather.watch(scene.now);
        scene
    }

    /// Where operations of the class arrive `micros` microseconds apart.
    fn with_gap(micros: u64) -> Self {
        let mut scene = Self::new();
        scene.gather.list(CLASS).gap = us(micros);
        scene
    }

    /// An operation that is taken from the queue as it arrives, `after` microseconds after the previous event.
    fn arrives(&mut self, class: Class, item: u32, after: u64) {
        self.now += us(after);
        let together = if class == Class::Alone { 1 } else { TOGETHER };
        self.gather.push(class, together, item, self.now, self.now);
    }

    fn decides(&mut self) -> Decision {
        self.gather.decide(self.now)
    }

    /// To wait until `micros` microseconds after now.
    fn wait(&self, micros: u64) -> Decision {
        Decision::Wait(self.now + us(micros))
    }

    /// A thread leaves with operations, and another takes its place at once.
    fn take(&mut self, class: Class) -> Vec<u32> {
        let batch = self.go_off(class);
        self.gather.watch(self.now);
        batch
    }

    fn go_off(&mut self, class: Class) -> Vec<u32> {
        let mut batch = Vec::new();
        self.gather.take(class, &mut batch, self.now);
        batch
    }

    /// A single operation to which nothing comes; whether it waited.
    fn waits_without_success(&mut self) -> bool {
        self.gather.list(CLASS).last_arrival = None;
        self.arrives(CLASS, 0, 1000);
        let waited = match self.decides() {
            Decision::Wait(until) => {
                self.now = until;
                assert_eq!(self.decides(), Decision::Go(CLASS));
                true
            }
            decision => {
                assert_eq!(decision, Decision::Go(CLASS));
                false
            }
        };
        assert_eq!(self.take(CLASS), [0]);
        waited
    }

    fn gap(&mut self) -> Duration {
        self.gather.list(CLASS).gap
    }
}

#[test]
fn without_operations_there_is_nothing_to_do() {
    assert_eq!(Scene::new().decides(), Decision::Sleep);
}

#[test]
fn a_lone_operation_goes_at_once() {
    let mut scene = Scene::new();
    for number in 0..5 {
        scene.arrives(CLASS, number, 100_000);
        assert_eq!(scene.decides(), Decision::Go(CLASS));
        assert_eq!(scene.take(CLASS), [number]);
        assert_eq!(scene.decides(), Decision::Sleep);
    }
}

#[test]
fn four_go_together_and_at_once() {
    let mut scene = Scene::with_gap(50);
    for number in 0..4 {
        assert!(!scene.gather.is_full());
        scene.arrives(CLASS, number, 0);
    }
    assert!(scene.gather.is_full());
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    assert_eq!(scene.take(CLASS), [0, 1, 2, 3]);
    assert!(!scene.gather.is_full());
}

#[test]
fn in_a_rush_an_operation_waits_for_as_long_as_the_others_are_likely_to_take() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), scene.wait(150));
    scene.arrives(CLASS, 1, 50);
    assert_eq!(scene.decides(), scene.wait(100));
    scene.now += us(99);
    assert_eq!(scene.decides(), scene.wait(1));
    scene.now += us(1);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    assert_eq!(scene.take(CLASS), [0, 1]);
}

#[test]
fn no_operation_waits_longer_than_it_takes_alone() {
    let mut scene = Scene::with_gap(150);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), scene.wait(ALONE));
    scene.arrives(CLASS, 1, 150);
    assert_eq!(scene.decides(), scene.wait(ALONE - 150));
}

#[test]
fn where_operations_could_be_performed_one_by_one_none_waits() {
    let mut scene = Scene::with_gap(ALONE);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
}

#[test]
fn the_gap_is_an_average_of_what_was_seen() {
    let mut scene = Scene::with_gap(80);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.gap(), us(80), "one arrival makes no gap");
    scene.arrives(CLASS, 1, 160);
    assert_eq!(scene.gap(), us(90));
    // What takes longer than two operations counts as two.
    scene.arrives(CLASS, 2, 3 * ALONE);
    assert_eq!(scene.gap(), (us(90) * 7 + us(2 * ALONE)) / 8);
}

#[test]
fn a_pause_ends_a_rush() {
    let mut scene = Scene::with_gap(10);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), scene.wait(30));
    scene.take(CLASS);
    scene.arrives(CLASS, 1, 4 * ALONE);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
}

#[test]
fn a_rush_is_noticed_after_a_few_arrivals() {
    let mut scene = Scene::new();
    let waits = |scene: &mut Scene, number| {
        scene.arrives(CLASS, number, 20);
        let waits = matches!(scene.decides(), Decision::Wait(_));
        scene.take(CLASS);
        waits
    };
    let first = (0..100).find(|number| waits(&mut scene, *number));
    assert_eq!(first, Some(6));
}

#[test]
fn unwatched_time_without_arrivals_is_no_gap() {
    let mut scene = Scene::with_gap(80);
    scene.arrives(CLASS, 0, 0);
    for number in 1..4 {
        scene.go_off(CLASS);
        scene.now += us(240);
        scene.gather.watch(scene.now);
        scene.arrives(CLASS, number, 80);
        assert_eq!(scene.gap(), us(80));
    }
}

#[test]
fn unwatched_arrivals_count_from_when_they_came() {
    let mut scene = Scene::with_gap(80);
    scene.arrives(CLASS, 0, 0);
    scene.go_off(CLASS);
    let arrived = scene.now + us(160);
    scene.now += us(240);
    scene.gather.watch(scene.now);
    scene.gather.push(CLASS, TOGETHER, 1, arrived, scene.now);
    assert_eq!(scene.gap(), us(90));
}

#[test]
fn a_class_is_not_in_a_rush_because_another_is() {
    let mut scene = Scene::with_gap(60);
    let rare = Class::Rsa4096;
    scene.arrives(rare, 0, 0);
    scene.go_off(rare);
    // Batches of the other class go one after another, and each fills while the one before is performed.
    for _ in 0..40 {
        let left = scene.now;
        scene.now += us(240);
        scene.gather.watch(scene.now);
        (1..5)
            .for_each(|number| scene.gather.push(CLASS, TOGETHER, number, left + us(60) * number, scene.now));
        scene.go_off(CLASS);
    }
    scene.gather.watch(scene.now);
    scene.arrives(rare, 9, 1);
    assert_eq!(scene.decides(), Decision::Go(rare));
    assert_eq!(scene.gather.list(rare).gap, us(2 * 1300));
}

#[test]
fn waits_without_success_become_shorter_and_rarer() {
    let mut scene = Scene::with_gap(50);
    let waited: Vec<_> = (0..2000).filter(|_| scene.waits_without_success()).collect();
    assert_eq!(waited[..7], [0, 2, 5, 10, 19, 36, 69]);
    let distances: Vec<_> = waited.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(distances.iter().all(|distance| *distance <= 257), "{distances:?}");
}

#[test]
fn one_wait_that_paid_restores_trust() {
    let mut scene = Scene::with_gap(50);
    let unsuccessful = (0..20).filter(|_| scene.waits_without_success()).count();
    assert_eq!(unsuccessful, 5);
    while scene.gather.list(CLASS).trust.left > 0 {
        assert!(!scene.waits_without_success());
    }
    scene.arrives(CLASS, 1, 50);
    assert!(matches!(scene.decides(), Decision::Wait(_)));
    scene.arrives(CLASS, 2, 50);
    scene.take(CLASS);
    assert!(scene.waits_without_success());
}

#[test]
fn classes_are_not_mixed_and_the_first_goes_first() {
    let mut scene = Scene::new();
    scene.arrives(Class::Rsa4096, 1, 0);
    scene.arrives(CLASS, 2, 1);
    scene.arrives(Class::Rsa4096, 3, 1);
    assert_eq!(scene.decides(), Decision::Go(Class::Rsa4096));
    assert_eq!(scene.take(Class::Rsa4096), [1, 3]);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    assert_eq!(scene.take(CLASS), [2]);
    assert_eq!(scene.decides(), Decision::Sleep);
}

#[test]
fn a_full_batch_goes_while_another_class_waits_but_not_before_what_is_due() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    for number in 1..5 {
        scene.arrives(Class::Rsa3072, number, 1);
    }
    assert_eq!(scene.decides(), Decision::Go(Class::Rsa3072));
    scene.now += us(150);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
}

#[test]
fn of_two_that_wait_the_nearer_time_counts() {
    let mut scene = Scene::with_gap(50);
    scene.gather.list(Class::Rsa4096).gap = us(20);
    scene.arrives(CLASS, 0, 0);
    scene.arrives(Class::Rsa4096, 1, 0);
    assert_eq!(scene.decides(), scene.wait(60));
}

#[test]
fn what_is_performed_alone_goes_one_by_one() {
    let mut scene = Scene::new();
    scene.gather.list(Class::Alone).gap = us(1);
    scene.arrives(Class::Alone, 7, 0);
    assert!(scene.gather.is_full());
    assert_eq!(scene.decides(), Decision::Go(Class::Alone));
    assert_eq!(scene.take(Class::Alone), [7]);
}

#[test]
fn what_is_not_wanted_any_more_does_not_count() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    scene.arrives(CLASS, 1, 10);
    scene.arrives(Class::Rsa4096, 2, 0);
    let removed: Vec<_> = scene.gather.remove(&|item| item % 2 == 0).collect();
    assert_eq!(removed, [0, 2]);
    let gap = scene.gap();
    assert_eq!(scene.decides(), Decision::Wait(scene.now + (gap * 3).min(us(ALONE))));
    assert_eq!(scene.take(CLASS), [1]);
    assert_eq!(scene.decides(), Decision::Sleep);
}

#[test]
fn waiting_that_ended_without_an_operation_teaches_nothing() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), scene.wait(150));
    assert_eq!(scene.gather.remove(&|_| true).count(), 1);
    scene.arrives(CLASS, 1, 10);
    scene.gather.close();
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    assert_eq!(scene.take(CLASS), [1]);
    assert!(scene.gather.list(CLASS).trust.allows());
}

#[test]
fn one_that_came_counts_though_another_left() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    scene.arrives(CLASS, 1, 10);
    assert!(matches!(scene.decides(), Decision::Wait(_)));
    assert_eq!(scene.gather.remove(&|item| *item == 0).count(), 1);
    scene.arrives(CLASS, 2, 10);
    assert_eq!(scene.take(CLASS), [1, 2]);
    assert!(scene.gather.list(CLASS).trust.allows());
}

#[test]
fn when_nothing_can_come_no_operation_waits() {
    let mut scene = Scene::with_gap(50);
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), scene.wait(150));
    scene.gather.close();
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    scene.take(CLASS);
    assert_eq!(scene.decides(), Decision::Sleep);
}

#[test]
fn the_cost_of_an_operation_is_measured_and_interruptions_count_little() {
    let mut scene = Scene::with_gap(190);
    scene.gather.performed_alone(CLASS, us(120));
    assert_eq!(scene.gather.list(CLASS).alone, us(190));
    scene.arrives(CLASS, 0, 0);
    assert_eq!(scene.decides(), Decision::Go(CLASS));
    scene.gather.performed_alone(Class::Rsa4096, Duration::from_secs(1));
    assert_eq!(scene.gather.list(Class::Rsa4096).alone, Duration::from_nanos(1_340_625));
}
