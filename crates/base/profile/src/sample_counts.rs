//! [`SampleCounts`], the collection of samples, counted per stack.

use std::collections::{BTreeMap, HashMap};

use crate::handler::Sample;
use crate::modules::{CodeLocation, Modules};

/// Maximum number of distinct stacks. Typical profiles have a few thousand; the limit bounds memory.
const STACKS: usize = 30_000;

/// Name of the stack that counts samples beyond [`STACKS`].
const OTHERS: &str = "[other stacks]";

/// Stacks as indices of names, with their number of samples.
pub(crate) type Counted = Vec<(Box<[u32]>, u64)>;

/// All samples so far.
#[derive(Default)]
pub(crate) struct SampleCounts {
    /// Meaning of the indices in `stacks`.
    known: Vec<Name>,
    threads: HashMap<String, u32>,
    places: HashMap<CodeLocation, u32>,
    stacks: HashMap<Box<[u32]>, u64>,
    /// Buffers that are reused for each sample.
    unwound: Vec<CodeLocation>,
    stack: Vec<u32>,
}

enum Name {
    /// Name of a thread, or a placeholder.
    Text(String),
    Location(CodeLocation),
}

impl SampleCounts {
    pub(crate) fn add(&mut self, thread: &str, modules: &mut Modules, sample: &Sample<'_>) {
        self.unwound.clear();
        modules.unwind(&sample.registers, sample.stack.unwrap_or_default(), &mut self.unwound);
        self.stack.clear();
        let thread = self.thread(thread);
        self.stack.push(thread);
        for place in self.unwound.iter().rev() {
            let number = *self.places.entry(*place).or_insert_with(|| {
                self.known.push(Name::Location(*place));
                self.known.len() as u32 - 1
            });
            self.stack.push(number);
        }
        self.count(sample.times);
    }

    /// Counts the stack in `self.stack`.
    fn count(&mut self, times: u64) {
        if let Some(samples) = self.stacks.get_mut(&self.stack[..]) {
            *samples += times;
            return;
        }
        if self.stacks.len() >= STACKS {
            let others = self.thread(OTHERS);
            self.stack.truncate(1);
            self.stack.push(others);
        }
        *self.stacks.entry(self.stack[..].into()).or_default() += times;
    }

    fn thread(&mut self, name: &str) -> u32 {
        if let Some(number) = self.threads.get(name) {
            return *number;
        }
        let number = self.known.len() as u32;
        self.known.push(Name::Text(name.to_owned()));
        self.threads.insert(name.to_owned(), number);
        number
    }

    /// Resolves names, and returns stacks as indices of names. Entries with equal names are merged.
    pub(crate) fn named(self, modules: &Modules) -> (Vec<String>, Counted) {
        let (mut names, mut numbers) = (Vec::new(), HashMap::new());
        let own = self.known.into_iter().map(|known| {
            let name = match known {
                Name::Text(name) => name,
                Name::Location(place) => modules.name(place),
            };
            *numbers.entry(name).or_insert_with_key(|name: &String| {
                names.push(name.clone());
                names.len() as u32 - 1
            })
        });
        let own: Vec<u32> = own.collect();
        let mut stacks: BTreeMap<Box<[u32]>, u64> = BTreeMap::new();
        for (stack, samples) in self.stacks {
            let stack = stack.iter().map(|number| own[*number as usize]).collect();
            *stacks.entry(stack).or_default() += samples;
        }
        (names, stacks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_stacks_is_bounded_and_no_sample_is_forgotten() {
        let mut counts = SampleCounts::default();
        let thread = counts.thread("worker-0");
        for number in 0..STACKS as u32 + 100 {
            let other = counts.thread(&format!("function {number}"));
            counts.stack = vec![thread, other, other];
            counts.count(2);
        }
        counts.stack = vec![thread, 1, 1];
        counts.count(1);
        assert_eq!(counts.stacks.len(), STACKS + 1);
        assert_eq!(counts.stacks.values().sum::<u64>(), 2 * (STACKS as u64 + 100) + 1);
        let modules = Modules::of_this_process().expect("a map");
        let (names, stacks) = counts.named(&modules);
        let (_, others) = stacks
            .iter()
            .find(|(stack, _)| stack.len() == 2 && names[stack[1] as usize] == OTHERS)
            .expect("one for all others");
        assert_eq!(*others, 200);
    }
}
