// Stands in for NVIDIA's driver: one GPU, whose memory is this process' and whose kernels the processor runs. Whatever
// the driver must not be asked for ends the process; what is left behind is counted.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>

using Address = unsigned long long;
using Private = void (*)(Address, Address, Address, Address, Address, Address, uint32_t, uint32_t);
using Advance = void (*)(Address, Address, Address, uint32_t);

static std::mutex guard;
static std::map<Address, size_t> gpu, pinned;
static thread_local void* current = nullptr;
static unsigned long unwiped = 0;
static bool broken = false;

[[noreturn]] static void wrong(const char* what) {
    fprintf(stderr, "the driver was asked for %s\n", what);
    abort();
}

static void in_context() {
    if (!current) wrong("something without a context");
}

static void within(const std::map<Address, size_t>& memory, Address from, size_t size) {
    std::lock_guard<std::mutex> lock(guard);
    auto next = memory.upper_bound(from);
    if (next == memory.begin()) wrong("memory that is not there");
    auto block = std::prev(next);
    if (from + size > block->first + block->second) wrong("memory beyond its end");
}

static int allocate(std::map<Address, size_t>& memory, Address* address, size_t size) {
    in_context();
    void* block = malloc(size);
    memset(block, 0xaa, size);
    std::lock_guard<std::mutex> lock(guard);
    memory[*address = reinterpret_cast<Address>(block)] = size;
    return 0;
}

static int release(std::map<Address, size_t>& memory, Address address) {
    in_context();
    std::lock_guard<std::mutex> lock(guard);
    auto block = memory.find(address);
    if (block == memory.end()) wrong("memory to be freed that is not there");
    auto bytes = reinterpret_cast<const char*>(address);
    for (size_t at = 0; at < block->second; at++) {
        if (bytes[at]) {
            unwiped++;
            break;
        }
    }
    free(reinterpret_cast<void*>(address));
    memory.erase(block);
    return 0;
}

static int copy(Address to, Address from, size_t size) {
    in_context();
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
    return 0;
}

extern "C" {
// For the test.
unsigned long blocks_left() { return gpu.size() + pinned.size(); }
unsigned long blocks_not_wiped() { return unwiped; }
void break_down() { broken = true; }

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int, const char** text) { *text = "unspecified launch failure"; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int number) { *device = number; return 0; }
int cuDeviceGetName(char* name, int size, int) { snprintf(name, size, "Stand-in"); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    // Multiprocessors, and the compute capability.
    *value = attribute == 16 ? 2 : attribute == 75 ? 9 : 0;
    return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { *context = &guard; return 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxGetCurrent(void** context) { *context = current; return 0; }
int cuCtxSetCurrent(void* context) { current = context; return 0; }

// An image is the path of a library, see libnvrtc.cpp.
int cuModuleLoadData(void** module, const void* image) {
    in_context();
    *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
    return *module ? 0 : 200;
}
int cuModuleUnload(void*) { in_context(); return 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
    char host[64];
    snprintf(host, sizeof host, "host_%s", name);
    *function = dlsym(module, host);
    return *function ? 0 : 500;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuFuncGetAttribute(int* value, int, void*) { *value = 1; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { *blocks = 1; return 0; }

int cuStreamCreate(void** stream, unsigned) { in_context(); *stream = malloc(1); return 0; }
int cuStreamSynchronize(void*) { in_context(); return 0; }
int cuStreamDestroy_v2(void* stream) { in_context(); free(stream); return 0; }
int cuEventCreate(void** event, unsigned) { in_context(); *event = malloc(1); return 0; }
int cuEventRecord(void*, void*) { in_context(); return 0; }
int cuEventSynchronize(void*) { in_context(); return 0; }
int cuEventDestroy_v2(void* event) { in_context(); free(event); return 0; }

int cuMemAlloc_v2(Address* address, size_t size) { return allocate(gpu, address, size); }
int cuMemFree_v2(Address address) { return release(gpu, address); }
int cuMemHostAlloc(void** address, size_t size, unsigned) {
    return allocate(pinned, reinterpret_cast<Address*>(address), size);
}
int cuMemFreeHost(void* address) { return release(pinned, reinterpret_cast<Address>(address)); }
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t size, void*) {
    within(gpu, to, size);
    return copy(to, reinterpret_cast<Address>(from), size);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t size, void*) {
    within(pinned, reinterpret_cast<Address>(to), size);
    within(gpu, from, size);
    return copy(reinterpret_cast<Address>(to), from, size);
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t size, void*) {
    within(gpu, to, size);
    within(gpu, from, size);
    return copy(to, from, size);
}
int cuMemsetD8Async(Address to, unsigned char value, size_t size, void*) {
    in_context();
    within(gpu, to, size);
    memset(reinterpret_cast<void*>(to), value, size);
    return 0;
}

int cuLaunchKernel(
    void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned, void*,
    void** parameters, void**)
{
    in_context();
    if (broken) return 719;
    if (!x || y != 1 || z != 1 || threads % 32) wrong("a launch of this shape");
    auto address = [&](int number) { return *static_cast<Address*>(parameters[number]); };
    auto count = [&](int number) { return *static_cast<uint32_t*>(parameters[number]); };
    Dl_info info;
    if (!dladdr(function, &info)) wrong("a launch of something that is no kernel");
    // The kernels of one width run in variables of their library.
    static std::mutex one;
    std::lock_guard<std::mutex> lock(one);
    if (!strcmp(info.dli_sname, "host_rsa_private")) {
        reinterpret_cast<Private>(function)(
            address(0), address(1), address(2), address(3), address(4), address(5), count(6), UINT32_MAX);
    } else {
        reinterpret_cast<Advance>(function)(address(0), address(1), address(2), count(3));
    }
    return 0;
}
}
