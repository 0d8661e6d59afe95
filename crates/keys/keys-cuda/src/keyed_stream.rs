//! [`KeyedStream`], a [`GpuStream`] with its keys: storage of keys, choice of blinding pairs, and launches.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use brisk_keys::{
    KeyError, KeyId,
    device::{Job, PrivateKey, Width},
};

use super::{
    error::CudaError,
    gpu_stream::{DONE, GpuStream, OUT_OF_RANGE},
    key::GpuKey,
    source::SLOTS,
    statistics::CudaLayout,
};
use crate::PERFORMER;

/// Wrong results up to this number in a launch are tolerated as accidents; more can be [`CudaError::Untrustworthy`].
const ACCIDENTS: usize = 4;

/// One stream, used by one thread.
pub(super) struct KeyedStream {
    gpu: Box<dyn GpuStream>,
    tables: [KeyTable; Width::ALL.len()],
    random: SystemRandom,
    /// Random bytes for the choice of slots in the present launch, and the blinding pairs to advance.
    drawn: Vec<u8>,
    advances: Vec<u32>,
}

/// Keys of one [`Width`].
#[derive(Default)]
struct KeyTable {
    places: HashMap<KeyId, u32>,
    /// By index; `None` is free.
    owners: Vec<Option<ResidentKey>>,
}

/// A [`PrivateKey`] on the GPU.
struct ResidentKey {
    id: KeyId,
    /// Dangling once no keystore and no operation refers to the [`PrivateKey`].
    key: Weak<PrivateKey>,
    /// Slot of the newest blinding pair.
    newest: u32,
    /// Whether the present launch uses the [`PrivateKey`].
    used: bool,
}

impl KeyedStream {
    pub(super) fn new(gpu: Box<dyn GpuStream>) -> Self {
        Self {
            gpu,
            tables: Default::default(),
            random: SystemRandom::new(),
            drawn: Vec::new(),
            advances: Vec::new(),
        }
    }

    /// Maximum number of operations in a launch: [`GpuStream::wave`].
    pub(super) fn wave(&self, width: Width) -> usize {
        self.gpu.wave(width)
    }

    /// Layout of operations of this width, after the first key.
    pub(super) fn layout(&self, width: Width) -> CudaLayout {
        self.gpu.layout(width)
    }

    /// Performs `jobs`, at most a wave of this width, and completes them. Operations without a result stay in the list:
    /// those that failed the check, or all after an error. Returns the number of failed checks.
    pub(super) fn perform(&mut self, width: Width, jobs: &mut Vec<Job>) -> Result<usize, CudaError> {
        self.admit(width, jobs.iter().map(Job::key))?;
        self.load(width, jobs.len(), jobs.iter().map(|job| (job.key(), job.input())))?;
        let (count, size) = (jobs.len(), width.bits() / 8);
        let results = self.gpu.perform(width, count, &self.advances)?;
        let mut answers = results.verdicts.iter().zip(results.outputs.chunks_exact(size));
        jobs.retain_mut(|job| match answers.next() {
            Some((&DONE, output)) => {
                job.complete(Ok(output.to_vec().into()), PERFORMER);
                false
            }
            Some((&OUT_OF_RANGE, _)) => {
                job.complete(Err(KeyError::OutOfRange), PERFORMER);
                false
            }
            _ => true,
        });
        // Results of decryptions are secret, and the next launch may be far away.
        self.gpu.wipe_buffers(width, count);
        trust(jobs.len(), count)?;
        Ok(jobs.len())
    }

    /// Measures a launch of `count` operations, at most a wave, with one key.
    pub(super) fn rehearse(
        &mut self,
        width: Width,
        key: &Arc<PrivateKey>,
        count: usize,
    ) -> Result<Duration, CudaError> {
        self.admit(width, [key].into_iter())?;
        let count = count.min(self.gpu.wave(width));
        let mut input = vec![0; width.bits() / 8];
        // With a zero first byte it is below the modulus.
        self.random.fill(&mut input[1..]).map_err(|_| NO_RANDOMNESS)?;
        let started = Instant::now();
        self.load(width, count, std::iter::repeat_n((key, &input[..]), count))?;
        let results = self.gpu.perform(width, count, &self.advances)?;
        let wrong = results.verdicts.iter().filter(|verdict| **verdict != DONE).count();
        let time = started.elapsed();
        self.gpu.wipe_buffers(width, count);
        if wrong > 0 { Err(CudaError::Untrustworthy { wrong, of: count }) } else { Ok(time) }
    }

    /// Wipes keys that are no longer in use.
    pub(super) fn sweep(&mut self) -> Result<(), CudaError> {
        Width::ALL.into_iter().try_for_each(|width| self.sweep_width(width))
    }

    fn sweep_width(&mut self, width: Width) -> Result<(), CudaError> {
        let table = &mut self.tables[width as usize];
        for (place, owner) in (0..).zip(&mut table.owners) {
            if let Some(gone) = owner.take_if(|owner| owner.key.strong_count() == 0) {
                table.places.remove(&gone.id);
                self.gpu.wipe_key(width, place)?;
            }
        }
        Ok(())
    }

    /// Uploads the [`PrivateKey`]s that are not on the GPU yet, together, so that their blinding pairs are computed in
    /// parallel. The others belong to the keystore of `keys` from now on.
    pub(super) fn admit<'a>(
        &mut self,
        width: Width,
        keys: impl Iterator<Item = &'a Arc<PrivateKey>>,
    ) -> Result<(), CudaError> {
        let table = &mut self.tables[width as usize];
        let (mut seen, mut missing) = (HashSet::new(), Vec::new());
        for key in keys {
            if let Some(owner) = table.owner(key.id()) {
                // A reload may have created the same key again. Renewed before the sweep, which would free its place.
                if owner.key.as_ptr() != Arc::as_ptr(key) {
                    owner.key = Arc::downgrade(key);
                }
            } else if seen.insert(key.id()) {
                missing.push(key);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        // Places of keys that a reload has replaced are used before more memory is reserved.
        self.sweep_width(width)?;
        let places = self.tables[width as usize].free_places(missing.len());
        let needed = places.iter().max().map_or(0, |last| *last as usize + 1);
        self.gpu.reserve(width, needed)?;
        for (key, place) in missing.iter().zip(&places) {
            let numbers = key.rsa_numbers();
            let record =
                numbers.and_then(|numbers| GpuKey::new(&numbers)).expect("the width is that of the key");
            self.gpu.put_key(width, *place, record.words(), &record.blinding_pair()?)?;
        }
        // Each pair is the square of the one before, so that the processor computes only the first.
        for slot in 1..SLOTS {
            let advances: Vec<_> = places.iter().flat_map(|place| [*place, slot]).collect();
            self.gpu.advance(width, &advances)?;
        }
        let table = &mut self.tables[width as usize];
        for (key, place) in missing.into_iter().zip(places) {
            table.place(key, place);
        }
        Ok(())
    }

    /// Fills the input buffers and marks the [`PrivateKey`]s as used.
    fn load<'a>(
        &mut self,
        width: Width,
        count: usize,
        operations: impl Iterator<Item = (&'a Arc<PrivateKey>, &'a [u8])>,
    ) -> Result<(), CudaError> {
        self.advances.clear();
        self.drawn.resize(4 * count, 0);
        self.random.fill(&mut self.drawn).map_err(|_| NO_RANDOMNESS)?;
        let (table, buffers) = (&mut self.tables[width as usize], self.gpu.buffers(width));
        let requests = buffers.requests.chunks_exact_mut(2);
        let inputs = buffers.inputs.chunks_exact_mut(width.bits() / 8);
        let drawn = self.drawn.chunks_exact(4);
        for ((((key, number), request), input), drawn) in operations.zip(requests).zip(inputs).zip(drawn) {
            let place = table.places[&key.id()];
            let owner = table.owners[place as usize].as_mut().expect("a key that has a place is there");
            if !owner.used {
                owner.used = true;
                self.advances.extend([place, owner.next()]);
            }
            let drawn = drawn.try_into().map(u32::from_le_bytes).expect("chunks of four");
            request.copy_from_slice(&[place, slots(drawn, owner.next())]);
            input.copy_from_slice(number);
        }
        for advance in self.advances.chunks_exact(2) {
            let owner = table.owners[advance[0] as usize].as_mut().expect("it is used");
            (owner.newest, owner.used) = (advance[1], false);
        }
        Ok(())
    }
}

const NO_RANDOMNESS: CudaError = CudaError::Key(KeyError::Failed("the system has no randomness"));

impl KeyTable {
    fn owner(&mut self, id: KeyId) -> Option<&mut ResidentKey> {
        let place = *self.places.get(&id)?;
        self.owners[place as usize].as_mut()
    }

    /// The first `count` free indices; may exceed the present size.
    fn free_places(&self, count: usize) -> Vec<u32> {
        let owned = |place: &usize| self.owners.get(*place).is_some_and(Option::is_some);
        (0..).filter(|place| !owned(place)).take(count).map(|place| place as u32).collect()
    }

    fn place(&mut self, key: &Arc<PrivateKey>, place: u32) {
        let (id, index) = (key.id(), place as usize);
        if self.owners.len() <= index {
            self.owners.resize_with(index + 1, || None);
        }
        self.owners[index] =
            Some(ResidentKey { id, key: Arc::downgrade(key), newest: SLOTS - 1, used: false });
        self.places.insert(id, place);
    }
}

impl ResidentKey {
    /// The slot that will be filled after the next launch.
    const fn next(&self) -> u32 {
        (self.newest + 1) % SLOTS
    }
}

/// Chooses two different slots for a [`Job`], neither of them `next`. There are about 8,000 such pairs, so as many
/// products of blinding pairs, some of which each launch renews.
fn slots(drawn: u32, next: u32) -> u32 {
    let first = (drawn & 0xffff) % (SLOTS - 1);
    let second = (first + 1 + (drawn >> 16) % (SLOTS - 2)) % (SLOTS - 1);
    let slot = |index: u32| (next + 1 + index) % SLOTS;
    slot(second) << 16 | slot(first)
}

/// Returns an error if there are too many wrong results for accidents.
const fn trust(wrong: usize, of: usize) -> Result<(), CudaError> {
    // Both conditions: in a small launch, a few accidents are no proof of a defect.
    if wrong > ACCIDENTS && wrong > of / 2 { Err(CudaError::Untrustworthy { wrong, of }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_two_and_not_the_one_that_is_renewed() {
        let mut seen = HashSet::new();
        for next in [0, 1, SLOTS - 1] {
            for drawn in (0..SLOTS).flat_map(|low| (0..SLOTS).map(move |high| high << 16 | low)) {
                let slots = slots(drawn, next);
                let (a, b) = (slots & 0xffff, slots >> 16);
                assert!(a < SLOTS && b < SLOTS && a != b && a != next && b != next, "{drawn} {next}");
                seen.insert((next, a, b));
            }
        }
        assert_eq!(seen.len() as u32, 3 * (SLOTS - 1) * (SLOTS - 2));
    }

    #[test]
    fn few_faults_are_accidents() {
        assert_eq!((trust(1, 1), trust(ACCIDENTS, ACCIDENTS), trust(500, 1000)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(trust(501, 1000), Err(CudaError::Untrustworthy { wrong: 501, of: 1000 }));
    }
}
