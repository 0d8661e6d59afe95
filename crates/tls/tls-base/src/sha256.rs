//! SHA-256 with the block function of AWS-LC, for processors without SHA instructions.
//!
//! `digest` buffers and pads the input, as for `sha2`. A hash state is then a plain value: `clone` copies it without an
//! allocation, whereas aws-lc allocates each context.

use brisk_lanes::sha256::{BLOCK, compress};
use hmac::digest::array::Array;
use hmac::digest::block_api::{
    Block, BlockSizeUser, Buffer, BufferKindUser, Eager, FixedOutputCore, OutputSizeUser, UpdateCore,
};
use hmac::digest::typenum::{U32, U64};
use hmac::digest::{self, HashMarker, Output};
use zeroize::Zeroize;

/// The initial state (FIPS 180-4 section 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

digest::buffer_fixed!(
    /// SHA-256 by AWS-LC.
    pub(crate) struct AwsLcSha256(Core);
    impl: BaseFixedTraits Default Clone HashMarker;
);

/// The state between blocks.
#[derive(Clone)]
pub(crate) struct Core {
    state: [u32; 8],
    blocks: u64,
}

impl Default for Core {
    fn default() -> Self {
        Self { state: INITIAL, blocks: 0 }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // After its key block, the state of an HMAC permits the same forgeries as the key.
        self.state.zeroize();
    }
}

impl HashMarker for Core {}

impl BlockSizeUser for Core {
    type BlockSize = U64;
}

impl BufferKindUser for Core {
    type BufferKind = Eager;
}

impl OutputSizeUser for Core {
    type OutputSize = U32;
}

impl UpdateCore for Core {
    fn update_blocks(&mut self, blocks: &[Block<Self>]) {
        self.blocks += blocks.len() as u64;
        compress(&mut self.state, Array::cast_slice_to_core(blocks));
    }
}

impl FixedOutputCore for Core {
    fn finalize_fixed_core(&mut self, buffer: &mut Buffer<Self>, out: &mut Output<Self>) {
        // FIPS 180-4 section 5.1.1: the padding ends with the length of the message in bits.
        let bits = 8 * (buffer.get_pos() as u64 + BLOCK as u64 * self.blocks);
        buffer.len64_padding_be(bits, |block| compress(&mut self.state, &[block.0]));
        for (bytes, word) in out.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }
}
