//! The matrices of keys, expanded from the seeds at their ends, and the hashes of the keys.
//!
//! All of this is public.

use super::{
    Encapsulation, KEY, LANES,
    batch::{RANK, word_of},
    encoding,
    keccak::{Block, LAST, RATE_128, RATE_256, SHA3, SHAKE, Sponges},
    polynomial,
    sampling::{self, Blocks, FIRST_BLOCKS, Sampled},
};

/// Entries of one matrix.
const ENTRIES: usize = RANK * RANK;

/// Most entries that are sampled beside the hashes of keys.
const AHEAD: usize = 2 * ENTRIES;

/// Permutations for the hash of a key suffice for several entries, one after another.
const ROUNDS: usize = KEY.div_ceil(RATE_256) / FIRST_BLOCKS;
const _: () = assert!(ROUNDS * FIRST_BLOCKS == KEY.div_ceil(RATE_256), "the hash ends with an entry");

/// The heavy parts as functions of their own.
pub(super) trait Kernels: polynomial::Kernels {
    fn hash_keys(encapsulations: &[Encapsulation], matrices: &mut Matrices, hashes: &mut [[u8; 64]; LANES]);
    fn sample(matrices: &mut Matrices, first: usize);
}

/// The entries of the transposed matrices of all keys, row by row.
pub(super) struct Matrices {
    seeds: [[u64; 4]; LANES],
    count: usize,
    next: usize,
    /// Indices of the sampled entries in `entries`.
    sampled: std::ops::Range<usize>,
    entries: [Sampled; AHEAD],
    blocks: [Blocks; LANES],
}

impl Matrices {
    #[inline(always)]
    pub(super) fn of(encapsulations: &[Encapsulation]) -> Self {
        let mut seeds = [[0; 4]; LANES];
        for lane in 0..encapsulations.len() {
            for word in 0..4 {
                seeds[lane][word] =
                    word_of(&encapsulations[lane].0.key[RANK * encoding::BYTES_OF_12_BITS..], word);
            }
        }
        Self {
            seeds,
            count: ENTRIES * encapsulations.len(),
            next: 0,
            sampled: 0..0,
            entries: [Sampled::EMPTY; AHEAD],
            blocks: [[0; size_of::<Blocks>()]; LANES],
        }
    }

    /// The next entry.
    #[inline(always)]
    pub(super) fn next<V: Kernels>(&mut self) -> &Sampled {
        if !self.sampled.contains(&self.next) {
            self.sampled = self.next..self.count.min(self.next + LANES);
            V::sample(self, self.next);
        }
        let place = self.next - self.sampled.start;
        if !self.entries[place].is_complete() {
            // Only entries sampled beside hashes.
            V::sample(self, self.next);
        }
        self.next += 1;
        &self.entries[place]
    }

    /// Entries that idle lanes can sample while keys are hashed. None if that would not spare any permutation later.
    const fn ahead(&self) -> usize {
        let idle = LANES - self.count / ENTRIES;
        let ahead = if idle * ROUNDS < self.count { idle * ROUNDS } else { self.count };
        if (self.count - ahead).div_ceil(LANES) < self.count.div_ceil(LANES) { ahead } else { 0 }
    }

    /// Input of the hash for an entry, in one of the lanes.
    #[inline(always)]
    fn put_input(&self, number: usize, lane: usize, inputs: &mut [[u64; LANES]; 5]) {
        let (key, entry) = (number / ENTRIES, number % ENTRIES);
        for word in 0..4 {
            inputs[word][lane] = self.seeds[key][word];
        }
        inputs[4][lane] = (entry / RANK) as u64 | ((entry % RANK) as u64) << 8 | SHAKE << 16;
    }

    /// Stores more than a block, up to whole registers; the next one overwrites the excess.
    #[inline(always)]
    fn store_block<V: Kernels>(&mut self, sponges: &Sponges<V>, block: usize) {
        let parts = [sponges.squeeze::<0>(), sponges.squeeze::<1>(), sponges.squeeze::<2>()];
        for lane in 0..LANES {
            let (registers, _) = self.blocks[lane][RATE_128 * block..].as_chunks_mut();
            for part in 0..parts.len() {
                parts[part][lane].store(&mut registers[part]);
            }
        }
    }
}

/// [`Kernels::hash_keys`]: SHA3-256 of keys, and in the lanes that are left the first entries of their matrices.
#[inline(always)]
pub(super) fn hash_keys<V: Kernels>(
    encapsulations: &[Encapsulation],
    matrices: &mut Matrices,
    hashes: &mut [[u8; 64]; LANES],
) {
    let keys = encapsulations.len();
    let ahead = matrices.ahead();
    let mut sponges = Sponges::<V>::empty();
    for round in 0..ROUNDS {
        let first = round * (LANES - keys);
        let wanted = ahead.saturating_sub(first).min(LANES - keys);
        let mut inputs = [[0; LANES]; 5];
        for lane in 0..wanted {
            matrices.put_input(first + lane, keys + lane, &mut inputs);
        }
        sponges.restart(keys, &inputs, RATE_128);
        for block in 0..FIRST_BLOCKS {
            let block_of_keys = blocks_of(encapsulations, round * FIRST_BLOCKS + block);
            sponges.absorb(&block_of_keys);
            sponges.permute();
            if wanted > 0 {
                matrices.store_block(&sponges, block);
            }
        }
        for lane in 0..wanted {
            let entry = &mut matrices.entries[first + lane];
            sampling::sample::<V>(entry, &matrices.blocks[keys + lane], FIRST_BLOCKS * RATE_128);
        }
    }
    matrices.sampled = 0..ahead;
    let lanes = sponges.squeeze::<0>();
    for lane in 0..keys {
        lanes[lane].store(&mut hashes[lane]);
    }
}

/// One block of each key, the last one with the padding; in the other lanes zeroes.
#[inline(always)]
fn blocks_of(encapsulations: &[Encapsulation], block: usize) -> [Block; LANES] {
    const LAST_BLOCK: usize = KEY % RATE_256;
    let mut blocks = [Block::ZERO; LANES];
    for lane in 0..encapsulations.len() {
        let (rest, bytes) = (&encapsulations[lane].0.key[block * RATE_256..], &mut blocks[lane].0);
        if let Some(whole) = rest.first_chunk::<RATE_256>() {
            bytes[..RATE_256].copy_from_slice(whole);
        } else {
            bytes[..LAST_BLOCK].copy_from_slice(&rest[..LAST_BLOCK]);
            bytes[LAST_BLOCK] = SHA3 as u8;
            bytes[RATE_256 - 1] = (LAST >> 56) as u8;
        }
    }
    blocks
}

/// [`Kernels::sample`]: the entry with this number and up to seven after it in `entries`.
#[inline(always)]
pub(super) fn sample<V: Kernels>(matrices: &mut Matrices, first: usize) {
    let wanted = LANES.min(matrices.sampled.end - first);
    let place = first - matrices.sampled.start;
    let mut inputs = [[0; LANES]; 5];
    for lane in 0..wanted {
        matrices.put_input(first + lane, lane, &mut inputs);
        matrices.entries[place + lane].clear();
    }
    let mut sponges = Sponges::<V>::of_words(&inputs, RATE_128);
    let (mut block, mut is_complete) = (0, false);
    while !is_complete {
        sponges.permute();
        // Blocks after the first ones are rarely needed, and come one by one.
        matrices.store_block(&sponges, block % FIRST_BLOCKS);
        block += 1;
        if block < FIRST_BLOCKS {
            continue;
        }
        let bytes = RATE_128 * if block == FIRST_BLOCKS { FIRST_BLOCKS } else { 1 };
        block = FIRST_BLOCKS;
        is_complete = true;
        for lane in 0..wanted {
            let entry = &mut matrices.entries[place + lane];
            sampling::sample::<V>(entry, &matrices.blocks[lane], bytes);
            is_complete &= entry.is_complete();
        }
    }
}
