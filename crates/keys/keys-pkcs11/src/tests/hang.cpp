// A PKCS #11 module that is SoftHSM, except that C_Sign never returns while the file that $BRISK_TEST_HANG names is there, and fails
// while one of that name and `.fail` is.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>

// CK_FUNCTION_LIST of PKCS #11 2.40: a version, and the functions in the order of the standard.
struct Functions {
    unsigned char version[2];
    void *functions[68];
};

using GetFunctionList = unsigned long (*)(Functions **);
using Sign = unsigned long (*)(unsigned long, unsigned char *, unsigned long, unsigned char *, unsigned long *);

static const int SIGN = 43;
static Functions list;
static Sign sign;

static unsigned long hanging_sign(unsigned long session, unsigned char *data, unsigned long length,
                                  unsigned char *signature, unsigned long *size) {
    while (access(getenv("BRISK_TEST_HANG"), F_OK) == 0) {
        usleep(10000);
    }
    if (access((std::string(getenv("BRISK_TEST_HANG")) + ".fail").c_str(), F_OK) == 0) {
        // CKR_FUNCTION_FAILED
        return 6;
    }
    return sign(session, data, length, signature, size);
}

extern "C" unsigned long C_GetFunctionList(Functions **out) {
    void *module = dlopen(MODULE, RTLD_NOW);
    auto get = reinterpret_cast<GetFunctionList>(dlsym(module, "C_GetFunctionList"));
    Functions *original;
    unsigned long result = get(&original);
    if (result != 0) {
        return result;
    }
    memcpy(&list, original, sizeof list);
    sign = reinterpret_cast<Sign>(list.functions[SIGN]);
    list.functions[SIGN] = reinterpret_cast<void *>(hanging_sign);
    *out = &list;
    return 0;
}
