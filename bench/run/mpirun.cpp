// SPDX-License-Identifier: BSD-3-Clause
#include "bench/run/mpirun.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "bench/model/column_name.h"
#include "c10d/capability.h"
#include "c10d/env.h"
#include "c10d/error.h"

namespace c10d::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kFoldersAbove = 3;  // of a library, where its bin may be

const char* name_of(std::string_view flavour) {
  return flavour == "openmpi" ? "Open MPI" : "MPICH";
}

// What `mpirun --version` says it is; empty: it cannot be started.
std::string flavour_of(const std::string& mpirun) {
  std::string said;
  LaunchOptions options;
  options.command = {mpirun, "--version"};
  options.on_line = [&](int, bool, std::string_view line) { said += line; };
  try {
    const LaunchResult result = launch(options);
    if (result.forwarded_signal != 0) std::raise(result.forwarded_signal);
    if (result.exit_code != 0) return "";
  } catch (const InvalidArgument&) {
    return "";
  }
  return said.find("Open MPI") != std::string::npos || said.find("OpenRTE") != std::string::npos
             ? "openmpi"
             : "mpich";
}

// In `bin`, or on PATH if that is empty; empty: none of that flavour.
std::string launcher_of(const std::string& flavour, const fs::path& bin) {
  for (const std::string& name :
       {"mpirun." + flavour, std::string("mpiexec.hydra"), std::string("mpirun")}) {
    const fs::path program = bin / name;
    if (bin.empty() || access(program.c_str(), X_OK) == 0)
      if (flavour_of(program) == flavour) return program;
  }
  return "";
}

// The name under which programs that were linked with the library look for it.
std::string soname_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return "";
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_SONAME && strings != nullptr) return strings + entry->d_un.d_val;
  return "";
}

// MPIs of one ABI take the place of each other; the number behind .so tells the ABI.
std::string flavour_of_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();  // begins with the path
    throw InvalidArgument(fmt::format("-B mpi@{}", why));
  }
  const bool is_mpi = dlsym(library, "MPI_Init_thread") != nullptr;
  const bool is_openmpi = dlsym(library, "ompi_mpi_comm_world") != nullptr;
  const std::string soname = soname_of(library);
  dlclose(library);
  if (!is_mpi)
    throw InvalidArgument(fmt::format(
        "-B mpi@{}: this library is no MPI: it has no MPI_Init_thread; give a libmpi.so", path));
  if (is_openmpi && soname == "libmpi.so.40") return "openmpi";
  if (!is_openmpi && soname.starts_with("libmpi") && soname.ends_with(".so.12")) return "mpich";
  throw InvalidArgument(
      fmt::format("-B mpi@{}: its ABI is that of {}, and c10d knows those of Open MPI "
                  "(libmpi.so.40) and of MPICH (libmpi.so.12, as MPICH, Intel MPI and MVAPICH "
                  "have it): give one of these",
                  path, soname.empty() ? "a library without a name" : soname));
}

// A library is given itself, or the folder that its MPI was installed in.
fs::path library_of(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"lib/libmpi.so.40", "lib/libmpi.so.12", "lib64/libmpi.so.40",
                           "lib64/libmpi.so.12", "lib/release/libmpi.so.12"})
    if (fs::exists(path / name)) return path / name;
  throw InvalidArgument(
      fmt::format("-B mpi@{}: no lib/libmpi.so.40 or lib/libmpi.so.12 in this "
                  "folder; give the path of a libmpi.so",
                  path.string()));
}

}  // namespace

Mpi find_mpi(const std::string& which) {
  if (which.empty()) return {.flavour = flavour_of("mpirun")};
  if (which == "openmpi" || which == "mpich") {
    Mpi mpi{.flavour = which, .mpirun = launcher_of(which, {})};
    if (!mpi.mpirun.empty()) return mpi;
    throw InvalidArgument(fmt::format("-B mpi@{}: no mpirun of {} on PATH; install it (Debian: {})",
                                      which, name_of(which),
                                      which == "openmpi" ? "openmpi-bin" : "mpich"));
  }
  if (which.find('/') == std::string::npos)
    throw InvalidArgument(fmt::format(
        "-B mpi@{}: which MPI? write mpi@openmpi, mpi@mpich, or mpi@ and the path of a libmpi.so "
        "or of its MPI's folder",
        which));
  const fs::path library = library_of(fs::absolute(which));
  Mpi mpi{.flavour = flavour_of_library(library), .mpirun = {}, .library = library};
  fs::path folder = library.parent_path();
  for (int above = 0; above <= kFoldersAbove && mpi.mpirun.empty(); ++above) {
    mpi.mpirun = launcher_of(mpi.flavour, folder / "bin");
    folder = folder.parent_path();
  }
  if (!mpi.mpirun.empty()) return mpi;
  throw InvalidArgument(fmt::format(
      "-B mpi@{}: no mpirun of its kind ({}) in a folder bin beside it or up to {} folders above; "
      "install the launcher of this MPI",
      which, name_of(mpi.flavour), kFoldersAbove));
}

bool needs_mpirun(const std::vector<std::string>& columns) {
  return std::ranges::any_of(list_backends(), [&](const BackendInfo& info) {
    return info.needs_launcher &&
           std::ranges::find(columns, info.name, backend_of) != columns.end();
  });
}

LaunchOptions start_self(const Mpi& mpi, int ranks) {
  const std::string self = fs::read_symlink("/proc/self/exe");
  LaunchOptions start;
  if (mpi.flavour.empty()) {
    start.ranks = ranks;
  } else {
    start.command = mpirun_command(mpi, ranks);
    start.command.insert(start.command.begin(), {self, "exec-mpirun"});
  }
  start.command.push_back(self);
  return start;
}

std::vector<std::string> mpirun_command(const Mpi& mpi, int ranks) {
  std::vector<std::string> command = {mpi.mpirun};
  // Ranks may use every CPU: a backend's progress threads need room, and binding them is not what
  // is compared.
  if (mpi.flavour == "openmpi") {
    command.insert(command.end(), {"--oversubscribe", "--bind-to", "none"});
    if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  } else {
    command.insert(command.end(), {"-bind-to", "none", "-genv", "I_MPI_PIN", "0"});  // Intel's
  }
  command.insert(command.end(), {"-n", std::to_string(ranks)});
  if (mpi.library.empty()) return command;
  command.insert(command.end(), {"env", "LD_PRELOAD=" + mpi.library});
  return command;
}

const std::vector<const char*>& variables_of_a_rank() {
  static const std::vector<const char*> names = {"C10D_RANK",
                                                 "C10D_WORLD_SIZE",
                                                 "C10D_LOCAL_RANK",
                                                 "C10D_LOCAL_WORLD_SIZE",
                                                 "C10D_LAUNCHER",
                                                 "C10D_TOKEN_FD",
                                                 "RANK",
                                                 "WORLD_SIZE",
                                                 "LOCAL_RANK",
                                                 "LOCAL_WORLD_SIZE",
                                                 "GROUP_RANK",
                                                 "GROUP_WORLD_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT"};
  return names;
}

int exec_mpirun(int argc, char** argv) {
  if (argc < 3) return 2;
  std::vector<std::string> command(argv + 2, argv + argc);
  if (const auto fd = env("C10D_TOKEN_FD"))
    command.insert(command.end(), {"--worker-token", fmt::format("/proc/{}/fd/{}", getpid(), *fd)});
  for (const char* name : variables_of_a_rank()) unsetenv(name);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  fmt::print(stderr, "c10d-bench: cannot start {}: {}\n", command.front(), std::strerror(errno));
  return 127;
}

}  // namespace c10d::bench
