// What the kernels need of CUDA, on a processor: the threads of a warp as fibers that take turns.
//
// A fiber runs up to the next exchange with the others, leaves its value there, and lets the next one run. When its
// turn comes again, all have left theirs. Nothing here can be used by two threads of the processor at a time.

#include <csetjmp>
#include <cstdlib>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
// Blocks run one after the other, so one memory does for all.
#define __shared__ static

namespace warp {

constexpr unsigned LANES = 32;
constexpr std::size_t STACK = 256 * 1024;

struct Fiber {
    jmp_buf state;
    ucontext_t beginning;
    alignas(16) char stack[STACK];
    unsigned exchanges;
};

static Fiber fibers[LANES];
static ucontext_t launcher;
static unsigned shared_values[2][LANES];
static void (*kernel)();

struct Index {
    unsigned x;
};
static Index thread_index, block_index;

static void let_next_run(unsigned lane) {
    thread_index.x = thread_index.x - lane + (lane + 1) % LANES;
    _longjmp(fibers[(lane + 1) % LANES].state, 1);
}

static __attribute__((noinline)) void wait_for_all(unsigned lane) {
    if (_setjmp(fibers[lane].state) == 0) let_next_run(lane);
}

// Shares a value with the other lanes, and returns the values of all.
static const unsigned* exchange(unsigned value) {
    const unsigned lane = thread_index.x % LANES;
    // The next exchange must not overwrite what others have yet to read of this one.
    unsigned* of_all = shared_values[fibers[lane].exchanges++ % 2];
    of_all[lane] = value;
    wait_for_all(lane);
    return of_all;
}

static void run_fiber() {
    const unsigned lane = thread_index.x % LANES;
    // Goes back to the launcher at once, and here when the one before lets this one run.
    if (_setjmp(fibers[lane].state) == 0) swapcontext(&fibers[lane].beginning, &launcher);
    kernel();
    // All have gone through the same exchanges, or they did not belong to one warp.
    if (fibers[lane].exchanges != fibers[0].exchanges) std::abort();
    if (lane + 1 < LANES) let_next_run(lane);
    setcontext(&launcher);
}

static void run_warp() {
    for (unsigned lane = 0; lane < LANES; lane++) {
        Fiber& fiber = fibers[lane];
        getcontext(&fiber.beginning);
        fiber.beginning.uc_stack.ss_sp = fiber.stack;
        fiber.beginning.uc_stack.ss_size = STACK;
        fiber.exchanges = 0;
        makecontext(&fiber.beginning, run_fiber, 0);
        thread_index.x = thread_index.x / LANES * LANES + lane;
        swapcontext(&launcher, &fiber.beginning);
    }
    thread_index.x = thread_index.x / LANES * LANES;
    // The last fiber to end comes back.
    static volatile bool running;
    running = true;
    getcontext(&launcher);
    if (running) {
        running = false;
        _longjmp(fibers[0].state, 1);
    }
}

static void launch(unsigned blocks, unsigned threads, void (*kernel_to_run)()) {
    kernel = kernel_to_run;
    for (block_index.x = 0; block_index.x < blocks; block_index.x++) {
        for (unsigned first = 0; first < threads; first += LANES) {
            thread_index.x = first;
            run_warp();
        }
    }
}

}  // namespace warp

#define threadIdx warp::thread_index
#define blockIdx warp::block_index

static inline unsigned __shfl_sync(unsigned, unsigned value, unsigned source, unsigned width) {
    const unsigned lane = threadIdx.x % warp::LANES;
    return warp::exchange(value)[lane / width * width + source % width];
}

static inline unsigned __ballot_sync(unsigned, bool vote) {
    const unsigned* votes = warp::exchange(vote);
    unsigned all = 0;
    for (unsigned lane = 0; lane < warp::LANES; lane++) all |= votes[lane] << lane;
    return all;
}

// As the kernels use it, to reverse the bytes of a word.
static inline unsigned __byte_perm(unsigned word, unsigned, unsigned) { return __builtin_bswap32(word); }
