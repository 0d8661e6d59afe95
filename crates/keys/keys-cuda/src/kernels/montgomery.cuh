// Montgomery's multiplication by the threads of a group.
//
// R is 2^32 to the power of the number of words, and the modulus has its highest bit set: R is less than twice the
// modulus. Products are less than R, which is enough to be a factor again; `canonical` makes them less than the modulus.

template <u32 SIZE>
struct Modulus {
    Number number;
    u32 inverse;   // -1 / modulus, modulo 2^32
};

// The sum of a multiplication, in one thread. Position 0 is the word that is dropped next.
//
// A product of two words is two words long and begins at each position. Those that begin at even positions lie side by
// side, and so do those at odd ones: two rows of words, each summed up by a chain of multiply-adds of 64 bits with carry,
// which is the instruction that the GPU is fast at.
//
// When the sum moves down a word, the rows change places, and nothing has to be moved: `odd` becomes `even` as it is, and
// `even` becomes `odd`, to be read two words further up by the chain that writes it next. Its word 1, by then at position
// 0, is added to the other row before.
struct Sum {
    u32 rows[2][LIMBS];   // positions 0 to LIMBS - 1, and positions 1 to LIMBS, except as said
    u32 incoming;         // position LIMBS - 1, of the second row: the word that the next thread has dropped
    u32 top;              // position LIMBS there; while words are multiplied, the one above
};

// row += (words FIRST, FIRST + 2, ... of the number)·digit; leaves a carry.
template <u32 FIRST>
__device__ __forceinline__ void multiply_add(u32 (&row)[LIMBS], const Number& number, u32 digit) {
    row[0] = mad_lo_cc(number.word[FIRST], digit, row[0]);
    row[1] = madc_hi_cc(number.word[FIRST], digit, row[1]);
#pragma unroll
    for (u32 i = 2; i < LIMBS; i += 2) {
        row[i] = madc_lo_cc(number.word[i + FIRST], digit, row[i]);
        row[i + 1] = madc_hi_cc(number.word[i + FIRST], digit, row[i + 1]);
    }
}

// The same for the words 1, 3, ..., into a row that was of even positions before the sum moved down.
__device__ __forceinline__ void multiply_add_down(u32 (&odd)[LIMBS], Sum& sum, const Number& number, u32 digit) {
#pragma unroll
    for (u32 i = 0; i + 2 < LIMBS; i += 2) {
        odd[i] = madc_lo_cc(number.word[i + 1], digit, odd[i + 2]);
        odd[i + 1] = madc_hi_cc(number.word[i + 1], digit, odd[i + 3]);
    }
    odd[LIMBS - 2] = madc_lo_cc(number.word[LIMBS - 1], digit, sum.incoming);
    odd[LIMBS - 1] = madc_hi_cc(number.word[LIMBS - 1], digit, sum.top);
}

// Adds a·digit, makes the lowest word of the whole number zero by a multiple of the modulus, and moves down a word.
// EVEN is the row of even positions.
template <u32 SIZE, u32 EVEN>
__device__ __forceinline__ void step(Sum& sum, const Number& a, u32 digit, const Modulus<SIZE>& modulus) {
    u32(&even)[LIMBS] = sum.rows[EVEN];
    u32(&odd)[LIMBS] = sum.rows[1 - EVEN];

    even[0] = add_cc(even[0], odd[1]);
    multiply_add_down(odd, sum, a, digit);
    sum.top = addc(0, 0);
    multiply_add<0>(even, a, digit);
    odd[LIMBS - 1] = addc_cc(odd[LIMBS - 1], 0);
    sum.top = addc(sum.top, 0);

    u32 quotient = Group<SIZE>::from(even[0] * modulus.inverse, 0);
    multiply_add<1>(odd, modulus.number, quotient);
    sum.top = addc(sum.top, 0);
    multiply_add<0>(even, modulus.number, quotient);
    odd[LIMBS - 1] = addc_cc(odd[LIMBS - 1], 0);
    sum.top = addc(sum.top, 0);

    // The last thread gets what the first has: zero.
    sum.incoming = Group<SIZE>::from(even[0], Group<SIZE>::rank() + 1);
}

// The sum as a number less than R. It is less than R and the modulus together: what is over R goes with one modulus.
template <u32 SIZE>
__device__ __forceinline__ Number settle(const Sum& sum, const Modulus<SIZE>& modulus) {
    // LIMBS is even, so the rows are as they were at the beginning.
    const u32(&even)[LIMBS] = sum.rows[0];
    const u32(&odd)[LIMBS] = sum.rows[1];
    Number number;
    number.word[0] = add_cc(even[0], odd[1]);
#pragma unroll
    for (u32 i = 1; i + 1 < LIMBS; i++) number.word[i] = addc_cc(even[i], odd[i + 1]);
    number.word[LIMBS - 1] = addc_cc(even[LIMBS - 1], sum.incoming);
    u32 carry = addc(sum.top, 0);

    // A carry to the next thread is a small number, and may itself bring forth a carry.
    const u32 rank = Group<SIZE>::rank();
    u32 from_below = Group<SIZE>::from(carry, rank + SIZE - 1) & mask(rank != 0);
    u32 over = Group<SIZE>::from(carry, SIZE - 1);
    over += settle_carry<SIZE>(number, increase(number, from_below));
    subtract<SIZE>(number, number, masked(modulus.number, mask(over)));
    return number;
}

// a·b/R modulo the modulus, less than R. One of the factors is less than R, the other too.
template <u32 SIZE>
__device__ __forceinline__ Number multiply(const Number& a, const Number& b, const Modulus<SIZE>& modulus) {
    Sum sum = {};
#pragma unroll 1
    for (u32 rank = 0; rank < SIZE; rank++) {
#pragma unroll
        for (u32 i = 0; i < LIMBS; i += 2) {
            step<SIZE, 0>(sum, a, Group<SIZE>::from(b.word[i], rank), modulus);
            step<SIZE, 1>(sum, a, Group<SIZE>::from(b.word[i + 1], rank), modulus);
        }
    }
    return settle<SIZE>(sum, modulus);
}

// The number, less than R, less the modulus if it is not less than that.
template <u32 SIZE>
__device__ __forceinline__ Number canonical(const Number& number, const Modulus<SIZE>& modulus) {
    Number difference;
    u32 less = subtract<SIZE>(difference, number, modulus.number);
    return select(mask(less), number, difference);
}

// a + b, both less than the modulus, as is the result.
template <u32 SIZE>
__device__ __forceinline__ Number add_modulo(const Number& a, const Number& b, const Modulus<SIZE>& modulus) {
    Number sum, difference;
    u32 over = add<SIZE>(sum, a, b);
    u32 less = subtract<SIZE>(difference, sum, modulus.number);
    return select(mask(less & ~over), sum, difference);
}

// a - b, both less than the modulus, as is the result.
template <u32 SIZE>
__device__ __forceinline__ Number subtract_modulo(const Number& a, const Number& b, const Modulus<SIZE>& modulus) {
    Number difference, sum;
    u32 less = subtract<SIZE>(difference, a, b);
    add<SIZE>(sum, difference, masked(modulus.number, mask(less)));
    return sum;
}

// A number of Montgomery's form without its factor R, less than the modulus.
template <u32 SIZE>
__device__ __forceinline__ Number plain(const Number& number, const Modulus<SIZE>& modulus) {
    Number one = {};
    one.word[0] = Group<SIZE>::rank() == 0;
    return canonical<SIZE>(multiply<SIZE>(number, one, modulus), modulus);
}

// R modulo the modulus, which is 1 in Montgomery's form: R less the modulus, whose lowest bit is set.
template <u32 SIZE>
__device__ __forceinline__ Number montgomery_one(const Modulus<SIZE>& modulus) {
    Number one;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) one.word[i] = ~modulus.number.word[i];
    one.word[0] |= Group<SIZE>::rank() == 0;
    return one;
}
