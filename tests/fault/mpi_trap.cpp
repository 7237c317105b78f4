// SPDX-License-Identifier: BSD-3-Clause
// Functions of the program stand before those of a library. MPI has a second name for each of its
// own, so that one may stand before it. Its handles are pointers or ints: they pass through.
#include "tests/fault/mpi_trap.h"

#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace c10d::fault {
namespace {

bool g_exits = false;
int g_until_failure = 0;
std::string g_stops_in;

constexpr int kErrorOfMpi = 16;  // of both MPIs

// MPI's own function, as the library that calls from `caller` sees it.
void* own(const char* name, const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0) std::abort();
  void* const library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void* const function = library ? dlsym(library, name) : nullptr;
  if (function == nullptr) std::abort();
  dlclose(library);
  return function;
}

void stop_in(const char* name) {
  if (g_stops_in == name) raise(SIGSTOP);
}

}  // namespace

void set_mpi_trap(const std::string& trap) {
  g_stops_in = trap;
  g_exits = trap == "exit";
  if (trap.rfind("fail:", 0) == 0) g_until_failure = std::stoi(trap.substr(5));
  if (trap == "stranger")
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
      unsetenv(name);
}

}  // namespace c10d::fault

extern "C" {

__attribute__((visibility("default"))) int MPI_Initialized(int* flag);
__attribute__((visibility("default"))) int MPI_Comm_idup(void* comm, void* copy, void* request);

int MPI_Initialized(int* flag) {
  using namespace c10d::fault;
  if (g_exits) _exit(0);
  return reinterpret_cast<int (*)(int*)>(own("PMPI_Initialized", __builtin_return_address(0)))(
      flag);
}

int MPI_Comm_idup(void* comm, void* copy, void* request) {
  using namespace c10d::fault;
  if (g_until_failure > 0 && --g_until_failure == 0) return kErrorOfMpi;
  return reinterpret_cast<int (*)(void*, void*, void*)>(
      own("PMPI_Comm_idup", __builtin_return_address(0)))(comm, copy, request);
}

// Stops in `name`, then is what MPI has under that name.
#define C10D_STOPPING(name, parameters, ...)                                    \
  __attribute__((visibility("default"))) int name parameters;                   \
  int name parameters {                                                         \
    c10d::fault::stop_in(#name);                                                \
    return reinterpret_cast<int(*) parameters>(                                 \
        c10d::fault::own("P" #name, __builtin_return_address(0)))(__VA_ARGS__); \
  }

C10D_STOPPING(MPI_Init_thread, (void* argc, void* argv, int required, void* provided), argc, argv,
              required, provided)
C10D_STOPPING(MPI_Comm_create_group, (void* comm, void* group, int tag, void* made), comm, group,
              tag, made)
C10D_STOPPING(MPI_Allreduce,
              (const void* from, void* to, int count, void* type, void* op, void* comm), from, to,
              count, type, op, comm)
C10D_STOPPING(MPI_Iallreduce,
              (const void* from, void* to, int count, void* type, void* op, void* comm,
               void* request),
              from, to, count, type, op, comm, request)
C10D_STOPPING(MPI_Finalize, (), )
}
