// Powers with secret exponents, by windows of WINDOW bits.

constexpr u32 ENTRIES = 1 << WINDOW;
constexpr u32 WINDOWS = (32 * HALF + WINDOW - 1) / WINDOW;

// The lowest powers of the base, in shared memory: for each power and each limb the words of all threads of the block side
// by side.
//
// The power that is looked up is a secret, and so is its address. But a thread reads and writes words of its own bank of
// the memory only, whatever the power, and no other thread of the warp has that bank: all look-ups take the same time.
struct Table {
    u32* own;

    __device__ __forceinline__ explicit Table(u32* shared) : own(shared + threadIdx.x) {}

    __device__ __forceinline__ void write(u32 power, const Number& number) {
#pragma unroll
        for (u32 i = 0; i < LIMBS; i++) own[(power * LIMBS + i) * BLOCK] = number.word[i];
    }

    __device__ __forceinline__ Number read(u32 power) const {
        Number number;
#pragma unroll
        for (u32 i = 0; i < LIMBS; i++) number.word[i] = own[(power * LIMBS + i) * BLOCK];
        return number;
    }

    // Leaves nothing of it to the next block. Writes that are never read would be optimized away without volatile.
    __device__ __forceinline__ void wipe() {
        volatile u32* words = own;
#pragma unroll 1
        for (u32 i = 0; i < ENTRIES * LIMBS; i++) words[i * BLOCK] = 0;
    }
};

// The WINDOW bits of the exponent from `bit` on.
__device__ __forceinline__ u32 window(const u32* exponent, u32 bit) {
    u32 low = bit / 32, high = low + 1;
    u64 both = (high < HALF ? u64(exponent[high]) << 32 : 0) | exponent[low];
    return u32(both >> bit % 32) & (ENTRIES - 1);
}

// base to the power of the HALF words of the exponent; both numbers in Montgomery's form, the result less than R.
template <u32 SIZE>
__device__ __forceinline__ Number power(
    const Number& base, const u32* exponent, const Modulus<SIZE>& modulus, Table table)
{
    Number result = montgomery_one<SIZE>(modulus);
    table.write(0, result);
#pragma unroll 1
    for (u32 i = 1; i < ENTRIES; i++) {
        result = multiply<SIZE>(result, base, modulus);
        table.write(i, result);
    }
    result = table.read(window(exponent, (WINDOWS - 1) * WINDOW));
#pragma unroll 1
    for (u32 left = WINDOWS - 1; left-- > 0;) {
        const u32 chosen = window(exponent, left * WINDOW);
#pragma unroll 1
        for (u32 squarings = 0; squarings < WINDOW; squarings++) result = multiply<SIZE>(result, result, modulus);
        result = multiply<SIZE>(result, table.read(chosen), modulus);
    }
    return result;
}
