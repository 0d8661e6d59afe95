// Stands in for NVRTC: has g++ make a library of the program, with what lets the processor run it, and gives out its path as
// the machine code. HOST is the folder of what that takes, FOLDER the one for what is made.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

struct Program {
    std::string text, library, log;
};

static std::string file(const char* name) {
    std::ifstream stream(std::string(HOST) + name);
    return {std::istreambuf_iterator<char>(stream), {}};
}

extern "C" {
int nvrtcCreateProgram(Program** program, const char* text, const char*, int, const char**, const char**) {
    *program = new Program{text, "", ""};
    return 0;
}

int nvrtcDestroyProgram(Program** program) {
    delete *program;
    return 0;
}

int nvrtcCompileProgram(Program* program, int count, const char** options) {
    char folder[] = FOLDER "/kernels-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    std::string source = std::string(folder) + "/kernels.cpp", command = "g++ -std=c++17 -O2 -fPIC -shared -w";
    program->library = std::string(folder) + "/kernels.so";
    std::ofstream(source) << file("warp.h") << program->text << file("launch.h");
    bool for_gpu = false;
    for (int i = 0; i < count; i++) {
        if (!strncmp(options[i], "-D", 2)) command += std::string(" ") + options[i];
        for_gpu |= !strcmp(options[i], "--gpu-architecture=sm_90");
    }
    if (!for_gpu) {
        program->log = "\nfor which GPU?\nthere are several";
        return 6;
    }
    command += " -U_FORTIFY_SOURCE -o " + program->library + " " + source;
    return system(command.c_str()) ? 6 : 0;
}

int nvrtcGetProgramLogSize(Program* program, size_t* size) {
    *size = program->log.size() + 1;
    return 0;
}

int nvrtcGetProgramLog(Program* program, char* log) {
    strcpy(log, program->log.c_str());
    return 0;
}

int nvrtcGetCUBINSize(Program* program, size_t* size) {
    *size = program->library.size() + 1;
    return 0;
}

int nvrtcGetCUBIN(Program* program, char* code) {
    strcpy(code, program->library.c_str());
    return 0;
}
}
