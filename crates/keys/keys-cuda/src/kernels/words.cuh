// Words of 32 bits, and chains of instructions that hand a carry on from one to the next.

typedef unsigned int u32;
typedef unsigned long long u64;

// A chain begins with the instruction without a c after its verb; those that end in _cc leave a carry, or a borrow, for
// the next one. Between two links of a chain there is no other instruction of this kind.
#ifdef __CUDA_ARCH__

#define CHAIN_OF_TWO(name, instruction)                                                   \
    __device__ __forceinline__ u32 name(u32 a, u32 b) {                                    \
        u32 result;                                                                        \
        asm volatile(instruction " %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));          \
        return result;                                                                     \
    }
#define CHAIN_OF_THREE(name, instruction)                                                 \
    __device__ __forceinline__ u32 name(u32 a, u32 b, u32 c) {                             \
        u32 result;                                                                        \
        asm volatile(instruction " %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c)); \
        return result;                                                                     \
    }

CHAIN_OF_TWO(add_cc, "add.cc.u32")
CHAIN_OF_TWO(addc_cc, "addc.cc.u32")
CHAIN_OF_TWO(addc, "addc.u32")
CHAIN_OF_TWO(sub_cc, "sub.cc.u32")
CHAIN_OF_TWO(subc_cc, "subc.cc.u32")
CHAIN_OF_TWO(subc, "subc.u32")
CHAIN_OF_THREE(mad_lo_cc, "mad.lo.cc.u32")
CHAIN_OF_THREE(madc_lo_cc, "madc.lo.cc.u32")
CHAIN_OF_THREE(madc_hi_cc, "madc.hi.cc.u32")

#else

static u32 carry_flag;

inline u32 with_carry(u64 sum) {
    carry_flag = u32(sum >> 32);
    return u32(sum);
}
inline u32 with_borrow(u64 difference) {
    carry_flag = u32(difference >> 63);
    return u32(difference);
}
inline u32 add_cc(u32 a, u32 b) { return with_carry(u64(a) + b); }
inline u32 addc_cc(u32 a, u32 b) { return with_carry(u64(a) + b + carry_flag); }
inline u32 addc(u32 a, u32 b) { return a + b + carry_flag; }
inline u32 sub_cc(u32 a, u32 b) { return with_borrow(u64(a) - b); }
inline u32 subc_cc(u32 a, u32 b) { return with_borrow(u64(a) - b - carry_flag); }
inline u32 subc(u32 a, u32 b) { return a - b - carry_flag; }
inline u32 mad_lo_cc(u32 a, u32 b, u32 c) { return with_carry(u64(a * b) + c); }
inline u32 madc_lo_cc(u32 a, u32 b, u32 c) { return with_carry(u64(a * b) + c + carry_flag); }
inline u32 madc_hi_cc(u32 a, u32 b, u32 c) { return with_carry((u64(a) * b >> 32) + c + carry_flag); }

#endif

// All ones for 1, nothing for 0.
__device__ __forceinline__ u32 mask(u32 bit) { return 0 - bit; }

// A word between the least-first order of the arithmetic and the greatest-first order of the wire.
__device__ __forceinline__ u32 swap_bytes(u32 word) { return __byte_perm(word, 0, 0x0123); }
