// RSA private operations by the Chinese remainder theorem, each on 2 * THREADS threads.
//
// The first half of an operation's threads computes modulo p, the second modulo q; all together compute modulo n.

using Half = Group<THREADS>;
using Whole = Group<2 * THREADS>;
constexpr u32 HALF_SIZE = THREADS, WHOLE_SIZE = 2 * THREADS;

// What becomes of an operation; 0 is a verdict that was not written.
constexpr u32 DONE = 1, OUT_OF_RANGE = 2, FAULT = 3;

// Where the numbers of a key are in its record, in words.
constexpr u32 INVERSES = 0;   // -1/n, -1/p, -1/q modulo 2^32, and a word of nothing
constexpr u32 N = 4;
constexpr u32 N_R2 = N + WORDS;         // R² modulo n, with the R of numbers modulo n
constexpr u32 Q_R = N_R2 + WORDS;       // q·R modulo n, likewise
constexpr u32 PRIMES = Q_R + WORDS;     // p and what goes with it, q and what goes with it:
constexpr u32 PRIME = 0;
constexpr u32 R2 = HALF;                // R² and R³ modulo the prime, with the R of numbers modulo a prime
constexpr u32 R3 = 2 * HALF;
constexpr u32 EXPONENT = 3 * HALF;      // d modulo the prime less 1
constexpr u32 PRIME_WORDS = 4 * HALF;
constexpr u32 Q_INVERSE = PRIMES + 2 * PRIME_WORDS;   // 1/q modulo p
constexpr u32 KEY_WORDS = Q_INVERSE + HALF;

// A blinding pair is u = r^e and v = 1/r for a random r, both in Montgomery's form.
constexpr u32 PAIR_WORDS = 2 * WORDS;

__device__ __forceinline__ u32 half_index() { return threadIdx.x / THREADS % 2; }

__device__ __forceinline__ Modulus<WHOLE_SIZE> load_n(const u32* key) {
    return {load<WHOLE_SIZE>(key + N), key[INVERSES]};
}

// A number of WORDS words, big-endian.
__device__ __forceinline__ Number load_bytes(const u32* words) {
    Number number;
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) number.word[i] = swap_bytes(words[WORDS - 1 - (Whole::rank() * LIMBS + i)]);
    return number;
}

__device__ __forceinline__ void store_bytes(u32* words, const Number& number) {
#pragma unroll
    for (u32 i = 0; i < LIMBS; i++) words[WORDS - 1 - (Whole::rank() * LIMBS + i)] = swap_bytes(number.word[i]);
}

// number·a·b modulo n, of two numbers in Montgomery's form.
__device__ __forceinline__ Number multiply_by_two(
    Number number, const u32* a, const u32* b, const Modulus<WHOLE_SIZE>& n)
{
#pragma unroll 1
    for (u32 i = 0; i < 2; i++) number = multiply<WHOLE_SIZE>(number, load<WHOLE_SIZE>(i == 0 ? a : b), n);
    return canonical<WHOLE_SIZE>(number, n);
}

// A number modulo n, modulo the prime of this half and in Montgomery's form: its lower words times R, its upper ones
// times R², since they stand for R times as much.
__device__ __forceinline__ Number reduce(const Number& number, const u32* own, const Modulus<HALF_SIZE>& prime) {
    Number sum = {};
#pragma unroll 1
    for (u32 part = 0; part < 2; part++) {
        Number words = number_from<WHOLE_SIZE>(number, part * THREADS + Half::rank());
        Number factor = load<HALF_SIZE>(own + (part == 0 ? R2 : R3));
        Number product = canonical<HALF_SIZE>(multiply<HALF_SIZE>(words, factor, prime), prime);
        sum = add_modulo<HALF_SIZE>(sum, product, prime);
    }
    return sum;
}

// What goes wrong on purpose, to see it caught: a bit of one half of one operation.
#ifdef FAULTS
#define FAULT_PARAMETER , u32 fault
#define FAULT_ARGUMENT , fault == 2 * index + half_index() && Half::rank() == 0
#define FAULT_HERE , u32 wrong
#define INJECT(number) number.word[0] ^= wrong
#else
#define FAULT_PARAMETER
#define FAULT_ARGUMENT
#define FAULT_HERE
#define INJECT(number)
#endif

// number^d modulo n, by powers modulo p and q.
__device__ __forceinline__ Number power_by_primes(
    const Number& number, const u32* key, const Modulus<WHOLE_SIZE>& n, Table table FAULT_HERE)
{
    const u32* own = key + PRIMES + half_index() * PRIME_WORDS;
    const Modulus<HALF_SIZE> prime = {load<HALF_SIZE>(own + PRIME), key[INVERSES + 1 + half_index()]};
    Number result = power<HALF_SIZE>(reduce(number, own, prime), own + EXPONENT, prime, table);
    INJECT(result);

    // Garner: the result modulo q, and as many times q as make it right modulo p. Only the first half computes anything
    // with a meaning here; the second goes along, modulo q.
    Number modulo_q = number_from<WHOLE_SIZE>(plain<HALF_SIZE>(result, prime), THREADS + Half::rank());
    Number same = canonical<HALF_SIZE>(multiply<HALF_SIZE>(modulo_q, load<HALF_SIZE>(own + R2), prime), prime);
    Number difference = subtract_modulo<HALF_SIZE>(canonical<HALF_SIZE>(result, prime), same, prime);
    Number times = multiply<HALF_SIZE>(difference, load<HALF_SIZE>(key + Q_INVERSE), prime);
    times = canonical<HALF_SIZE>(times, prime);

    // The words of both are the lower ones of a number modulo n.
    const u32 lower = mask(half_index() == 0);
    Number product = multiply<WHOLE_SIZE>(masked(times, lower), load<WHOLE_SIZE>(key + Q_R), n);
    Number sum;
    add<WHOLE_SIZE>(sum, canonical<WHOLE_SIZE>(product, n), masked(modulo_q, lower));
    return sum;
}

// number^65537 modulo n.
__device__ __forceinline__ Number power_of_public_exponent(
    const Number& number, const u32* key, const Modulus<WHOLE_SIZE>& n)
{
    // To Montgomery's form; sixteen squarings; once more the number, which takes that form away.
    constexpr u32 SQUARINGS = 16;
    Number result = number;
#pragma unroll 1
    for (u32 i = 0; i < SQUARINGS + 2; i++) {
        Number factor = i == 0 ? load<WHOLE_SIZE>(key + N_R2) : i <= SQUARINGS ? result : number;
        result = multiply<WHOLE_SIZE>(result, factor, n);
    }
    return canonical<WHOLE_SIZE>(result, n);
}

// Performs `count` operations. `blinding` has for each key a ring of SLOTS pairs; `requests` for each operation the index
// of its key and two slots of its ring, b << 16 | a. Inputs and outputs are numbers of WORDS words, big-endian.
extern "C" __global__ void __launch_bounds__(BLOCK) rsa_private(
    const u32* keys, const u32* blinding, const u32* requests, const u32* inputs, u32* outputs, u32* verdicts,
    u32 count FAULT_PARAMETER)
{
    __shared__ u32 powers[ENTRIES * LIMBS * BLOCK];
    Table table(powers);
    const u32 operation = (blockIdx.x * BLOCK + threadIdx.x) / WHOLE_SIZE;
    const bool wanted = operation < count;
    // Threads with nothing to do repeat the last operation: the others of their warp wait for them.
    const u32 index = wanted ? operation : count - 1;

    const u32* key = keys + u64(requests[2 * index]) * KEY_WORDS;
    const u32* ring = blinding + u64(requests[2 * index]) * SLOTS * PAIR_WORDS;
    const u32 slots = requests[2 * index + 1];
    const u32* a = ring + (slots & 0xffff) * PAIR_WORDS;
    const u32* b = ring + (slots >> 16) * PAIR_WORDS;

    const Modulus<WHOLE_SIZE> n = load_n(key);
    const Number input = load_bytes(inputs + u64(index) * WORDS);
    const Number blinded = multiply_by_two(input, a, b, n);
    const Number power = power_by_primes(blinded, key, n, table FAULT_ARGUMENT);
    const Number output = multiply_by_two(power, a + WORDS, b + WORDS, n);
    table.wipe();

    // A result that was computed wrongly modulo one prime would reveal the other prime.
    const bool right = equal<WHOLE_SIZE>(power_of_public_exponent(output, key, n), input);
    Number difference;
    const bool in_range = subtract<WHOLE_SIZE>(difference, input, n.number) != 0;
    if (wanted) {
        store_bytes(outputs + u64(index) * WORDS, masked(output, mask(right && in_range)));
        if (Whole::rank() == 0) verdicts[index] = !in_range ? OUT_OF_RANGE : right ? DONE : FAULT;
    }
}

// Replaces pairs by the squares of those before them in their rings. `advances` has for each of the `count` pairs the index
// of its key and its slot.
extern "C" __global__ void __launch_bounds__(BLOCK) advance_blinding(
    const u32* keys, u32* blinding, const u32* advances, u32 count)
{
    // A group squares u, the next one v.
    const u32 group = (blockIdx.x * BLOCK + threadIdx.x) / WHOLE_SIZE;
    const bool wanted = group < 2 * count;
    const u32 index = wanted ? group / 2 : count - 1;
    const u32 key = advances[2 * index], slot = advances[2 * index + 1];
    u32* ring = blinding + u64(key) * SLOTS * PAIR_WORDS + group % 2 * WORDS;
    const u32* newest = ring + (slot + SLOTS - 1) % SLOTS * PAIR_WORDS;
    u32* oldest = ring + slot * PAIR_WORDS;

    const Modulus<WHOLE_SIZE> n = load_n(keys + u64(key) * KEY_WORDS);
    const Number factor = load<WHOLE_SIZE>(newest);
    const Number square = multiply<WHOLE_SIZE>(factor, factor, n);
    if (wanted) {
#pragma unroll
        for (u32 i = 0; i < LIMBS; i++) oldest[Whole::rank() * LIMBS + i] = square.word[i];
    }
}
