// Numbers that lie spread over neighbouring threads of a warp, and what these threads exchange.
//
// A group is SIZE threads, a power of two. The least words of a number are with its first thread. All groups of a warp do
// the same at the same time, each with a number of its own: no branch depends on a number.

constexpr u32 HALF = WORDS / 2;         // words of a prime
constexpr u32 LIMBS = HALF / THREADS;   // words of a number in one thread
constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffff;

static_assert(LIMBS * THREADS == HALF && LIMBS % 2 == 0, "a thread has an even number of words");
static_assert(2 * THREADS <= WARP && WARP % THREADS == 0, "an operation lies in one warp");
static_assert(BLOCK % WARP == 0, "a block is of whole warps");

// The words that this thread has of a number.
struct Number {
    u32 word[LIMBS];
};

template <u32 SIZE>
struct Group {
    // Which of the group this thread is.
    static __device__ __forceinline__ u32 rank() { return threadIdx.x % SIZE; }

    // What the thread of that rank, modulo SIZE, has for `value`.
    static __device__ __forceinline__ u32 from(u32 value, u32 rank) {
        if constexpr (SIZE == 1) {
            return value;
        } else {
            return __shfl_sync(ALL_LANES, value, rank, SIZE);
        }
    }

    // The votes of the group, one bit for each thread, the first one's lowest.
    static __device__ __forceinline__ u32 votes(bool vote) {
        u32 all = __ballot_sync(ALL_LANES, vote);
        if constexpr (SIZE == WARP) {
            return all;
        } else {
            return all >> (threadIdx.x % WARP - rank()) & ((1u << SIZE) - 1);
        }
    }
};

template <bool CONDITION, class Yes, class No>
struct If {
    using Type = Yes;
};
template <class Yes, class No>
struct If<false, Yes, No> {
    using Type = No;
};

struct Carry {
    u32 in;    // to this thread, from those below it
    u32 out;   // of the whole number
};

// Where carries go that arise in some threads (`generates`) and run through others (`passes`; these are never the same):
// one addition of the votes has them run.
template <u32 SIZE>
__device__ __forceinline__ Carry look_ahead(bool generates, bool passes) {
    // A bit more than there are threads.
    using Votes = typename If<SIZE == WARP, u64, u32>::Type;
    Votes generating = Group<SIZE>::votes(generates), passing = Group<SIZE>::votes(passes);
    Votes carries = ((generating << 1) + passing) ^ passing;
    return {u32(carries >> Group<SIZE>::rank()) & 1, u32(carries >> SIZE) & 1};
}

// Adds a word to those of this thread, and returns the carry.
__device__ __forceinline__ u32 increase(Number& number, u32 word) {
    number.word[0] = add_cc(number.word[0], word);
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) number.word[i] = addc_cc(number.word[i], 0);
    return addc(0, 0);
}

// Hands the carry out of each thread's words on to the next thread, and returns that of the number.
template <u32 SIZE>
__device__ __forceinline__ u32 settle_carry(Number& number, u32 carry) {
    u32 common = number.word[0];
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) common &= number.word[i];
    Carry settled = look_ahead<SIZE>(carry != 0, common == 0xffffffff);
    increase(number, settled.in);
    return settled.out;
}

// sum = a + b; returns the carry.
template <u32 SIZE>
__device__ __forceinline__ u32 add(Number& sum, const Number& a, const Number& b) {
    sum.word[0] = add_cc(a.word[0], b.word[0]);
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) sum.word[i] = addc_cc(a.word[i], b.word[i]);
    return settle_carry<SIZE>(sum, addc(0, 0));
}

// difference = a - b; returns the borrow.
template <u32 SIZE>
__device__ __forceinline__ u32 subtract(Number& difference, const Number& a, const Number& b) {
    difference.word[0] = sub_cc(a.word[0], b.word[0]);
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) difference.word[i] = subc_cc(a.word[i], b.word[i]);
    bool borrows = subc(0, 0) != 0;
    u32 common = difference.word[0];
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) common |= difference.word[i];
    Carry settled = look_ahead<SIZE>(borrows, common == 0);
    difference.word[0] = sub_cc(difference.word[0], settled.in);
#pragma unroll
    for (u32 i = 1; i < LIMBS; i++) difference.word[i] = subc_cc(difference.word[i], 0);
    return settled.out;
}

// The number, or 0 where `mask` is 0.
__device__ __forceinline__ Number masked(Number number, u32 mask) {
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) number.word[i] &= mask;
    return number;
}

// `a` where `mask` is all ones, `b` where it is 0.
__device__ __forceinline__ Number select(u32 mask, const Number& a, const Number& b) {
    Number chosen;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) chosen.word[i] = (a.word[i] & mask) | (b.word[i] & ~mask);
    return chosen;
}

template <u32 SIZE>
__device__ __forceinline__ bool equal(const Number& a, const Number& b) {
    u32 different = 0;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) different |= a.word[i] ^ b.word[i];
    return Group<SIZE>::votes(different != 0) == 0;
}

// The words that the thread of that rank has.
template <u32 SIZE>
__device__ __forceinline__ Number number_from(const Number& number, u32 rank) {
    Number copy;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) copy.word[i] = Group<SIZE>::from(number.word[i], rank);
    return copy;
}

template <u32 SIZE>
__device__ __forceinline__ Number load(const u32* words) {
    Number number;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) number.word[i] = words[Group<SIZE>::rank() * LIMBS + i];
    return number;
}
