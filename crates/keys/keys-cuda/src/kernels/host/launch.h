// Launches of the kernels on a processor, with as many blocks as the work takes.

namespace {

// What the kernel that is running was called with.
struct {
    const u32 *keys, *blinding, *requests, *inputs;
    u32 *outputs, *verdicts;
    u32 count, fault;
} private_call;

struct {
    const u32* keys;
    u32* blinding;
    const u32* advances;
    u32 count;
} advance_call;

struct {
    const u32* modulus;
    u32 inverse;
    const u32 *a, *b;
    u32* product;
} multiply_call;

u32 blocks(u32 groups) {
    constexpr u32 each = BLOCK / WHOLE_SIZE;
    return (groups + each - 1) / each;
}

// All groups of a warp compute the same.
template <u32 SIZE>
void multiply_once() {
    const auto& call = multiply_call;
    Modulus<SIZE> modulus = {load<SIZE>(call.modulus), call.inverse};
    Number product = multiply<SIZE>(load<SIZE>(call.a), load<SIZE>(call.b), modulus);
    for (u32 i = 0; i < LIMBS; i++) call.product[Group<SIZE>::rank() * LIMBS + i] = product.word[i];
}

}  // namespace

extern "C" void host_rsa_private(
    const u32* keys, const u32* blinding, const u32* requests, const u32* inputs, u32* outputs, u32* verdicts,
    u32 count, u32 fault)
{
    private_call = {keys, blinding, requests, inputs, outputs, verdicts, count, fault};
    warp::launch(blocks(count), BLOCK, [] {
        const auto& call = private_call;
#ifdef FAULTS
        rsa_private(call.keys, call.blinding, call.requests, call.inputs, call.outputs, call.verdicts, call.count, call.fault);
#else
        rsa_private(call.keys, call.blinding, call.requests, call.inputs, call.outputs, call.verdicts, call.count);
#endif
    });
}

extern "C" void host_advance_blinding(const u32* keys, u32* blinding, const u32* advances, u32 count) {
    advance_call = {keys, blinding, advances, count};
    warp::launch(blocks(2 * count), BLOCK, [] {
        const auto& call = advance_call;
        advance_blinding(call.keys, call.blinding, call.advances, call.count);
    });
}

extern "C" void host_multiply_half(const u32* modulus, u32 inverse, const u32* a, const u32* b, u32* product) {
    multiply_call = {modulus, inverse, a, b, product};
    warp::launch(1, warp::LANES, multiply_once<HALF_SIZE>);
}

extern "C" void host_multiply_whole(const u32* modulus, u32 inverse, const u32* a, const u32* b, u32* product) {
    multiply_call = {modulus, inverse, a, b, product};
    warp::launch(1, warp::LANES, multiply_once<WHOLE_SIZE>);
}
