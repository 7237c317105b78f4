// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "src/backends/by_device.h"
#include "src/backends/module.h"
#include "src/backends/native/native.h"
#include "src/base/mutex.h"
#include "src/device/gpu.h"
#include "src/group/backend_names.h"
#include "src/group/check_arguments.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::string_view kNative = "native";

// What a module wraps, and the Debian packages to build it and to run it.
struct Wrapped {
  std::string_view stem;
  std::string_view library;
  std::string_view build_package;
  std::string_view run_package;
};
constexpr std::array kWrapped = {
    Wrapped{"gloo", "Gloo", "libgloo-dev", "libgloo0"},
    Wrapped{"mpi_openmpi", "Open MPI", "libopenmpi-dev", "libopenmpi3 openmpi-bin"},
    Wrapped{"mpi_mpich", "MPICH", "libmpich-dev", "libmpich12 mpich"},
};
// The names that every build knows, whether or not their module was built.
constexpr std::array<std::string_view, 4> kBackendNames = {kNative, "gloo", "mpi", "nccl"};
constexpr std::array<std::string_view, 2> kMpis = {"_openmpi", "_mpich"};

bool is_known(std::string_view name) {
  return std::find(kBackendNames.begin(), kBackendNames.end(), name) != kBackendNames.end();
}

struct Registry {
  Mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories C10D_GUARDED_BY(mutex);
};
Registry& registry() {
  static auto& instance = *new Registry();
  return instance;
}

BackendFactory registered(std::string_view name) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  const auto found = all.factories.find(name);
  return found == all.factories.end() ? nullptr : found->second;
}

// "raw:mpi" lies in libc10d_raw_mpi_<which MPI>.so.
std::string stem_of(std::string_view name) {
  std::string stem(name);
  std::replace(stem.begin(), stem.end(), ':', '_');
  return stem;
}

bool wraps_mpi(std::string_view name) { return name == "mpi" || name.ends_with(":mpi"); }

// Two MPIs in one process would bind each other's symbols, so exactly one is chosen: the one that
// is already loaded, else the one that launched us, else nothing ("whichever is installed").
std::string_view chosen_mpi() {
  if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world")) return kMpis[0];
  if (dlsym(RTLD_DEFAULT, "MPI_Init")) return kMpis[1];
  if (env("OMPI_COMM_WORLD_SIZE")) return kMpis[0];
  if (env("PMI_SIZE") || env("PMI_RANK")) return kMpis[1];
  return {};
}

std::string explain(std::string_view stem, const OpenedModule& opened) {
  const auto known = std::find_if(kWrapped.begin(), kWrapped.end(), [&](const Wrapped& wrapped) {
    return stem.ends_with(wrapped.stem);
  });
  if (opened.path.empty()) {
    if (!opened.reason.empty()) return opened.reason;
    if (known == kWrapped.end() || known->stem != stem)
      return fmt::format("no libc10d_{}.so in {}", stem, fmt::join(module_folders(), ", "));
    return fmt::format(
        "no libc10d_{}.so in {}: not installed, or not built because configure found no {} "
        "(install "
        "{}, then build again)",
        stem, fmt::join(module_folders(), ", "), known->library, known->build_package);
  }
  if (known == kWrapped.end()) return opened.reason;
  return fmt::format("{} (install {})", opened.reason, known->run_package);
}

OpenedModule open_explained(const std::string& stem) {
  OpenedModule opened = open_module(stem);
  if (!opened.module) {
    opened.reason = explain(stem, opened);
  } else if (opened.module->why_unavailable) {
    opened.reason = opened.module->why_unavailable();
    if (!opened.reason.empty()) opened.module = nullptr;
  }
  return opened;
}

OpenedModule open_backend(std::string_view name) {
  const std::string stem = stem_of(name);
  if (!wraps_mpi(name)) return open_explained(stem);
  if (const std::string_view chosen = chosen_mpi(); !chosen.empty())
    return open_explained(stem + std::string(chosen));
  OpenedModule first = open_explained(stem + std::string(kMpis[0]));
  if (first.module) return first;
  OpenedModule second = open_explained(stem + std::string(kMpis[1]));
  if (second.module) return second;
  if (second.reason != first.reason) first.reason += "; " + second.reason;
  return first;
}

[[noreturn]] void throw_unavailable(std::string_view name, const std::string& reason) {
  std::string message = fmt::format("backend '{}' is not available: {}", name, reason);
  if (!name.starts_with("raw:") && !is_known(name))
    message += fmt::format("; known names: {}", fmt::join(kBackendNames, ", "));
  throw_failure(Failure{.code = Code::unsupported, .message = std::move(message)});
}

const BackendModule& require_module(std::string_view name) {
  const OpenedModule opened = open_backend(name);
  if (!opened.module) throw_unavailable(name, opened.reason);
  return *opened.module;
}

// "raw_mpi_openmpi" is the module of "raw:mpi".
std::string name_of(std::string stem) {
  for (const std::string_view mpi : kMpis)
    if (stem.ends_with(mpi)) stem.resize(stem.size() - mpi.size());
  if (stem.starts_with("raw_")) stem[3] = ':';
  return stem;
}

std::unique_ptr<Backend> make_one(std::string_view name, BackendContext context) {
  if (name == kNative) return make_native_backend(std::move(context));
  if (const BackendFactory factory = registered(name)) return factory(std::move(context));
  return require_module(name).create(std::move(context));
}

bool is_cuda_only(std::string_view name) {
  return name != kNative && !registered(name) && require_module(name).cuda_only;
}

// As backend_names_of(); none for the host where one name is that of a backend for GPUs only.
BackendNames names_of(std::string_view text) {
  const auto parsed = backend_names_of(text);
  if (!parsed) throw_unavailable(text, "write NAME, or cuda:NAME,cpu:NAME");
  BackendNames names = *parsed;
  if (names.cpu == text && is_cuda_only(text)) names.cpu = {};
  return names;
}

// Of all ranks of a host the backends serve GPUs by their places on it.
int local_rank(const BackendContext& context) {
  int before = 0;
  for (const Member& member : context.members)
    if (member.same_host && member.rank < context.rank) ++before;
  return before;
}

}  // namespace

void register_backend(std::string name, BackendFactory factory) {
  if (name.empty() || !factory)
    throw InvalidArgument("register_backend: a name and a factory are needed");
  Registry& all = registry();
  MutexLock lock(all.mutex);
  if (is_known(name) || !all.factories.emplace(name, std::move(factory)).second)
    throw InvalidArgument(fmt::format("register_backend: the name '{}' is taken", name));
}

bool outlives_networks(std::string_view text) {
  const auto names = backend_names_of(text);
  return names && names->cpu == kNative && (names->cuda.empty() || names->cuda == kNative);
}

std::span<const std::string_view> known_backend_names() noexcept { return kBackendNames; }

std::vector<BackendInfo> list_backends() {
  std::vector<std::string> names(kBackendNames.begin(), kBackendNames.end());
  const auto add = [&](std::string name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  };
  for (const std::string& stem : module_stems()) add(name_of(stem));
  {
    Registry& all = registry();
    MutexLock lock(all.mutex);
    for (const auto& [name, factory] : all.factories) add(name);
  }
  std::vector<BackendInfo> infos;
  for (const std::string& name : names) {
    BackendInfo info{.name = name};
    if (name == kNative) {
      info.available = true;
      info.version = kVersion;
    } else if (registered(name)) {
      info.available = true;
    } else {
      const OpenedModule opened = open_backend(name);
      info.available = opened.module != nullptr;
      info.reason = opened.reason;
      info.path = opened.path;
      if (opened.module) {
        info.version = opened.module->version();
        info.needs_launcher = opened.module->needs_launcher;
        info.cuda_only = opened.module->cuda_only;
      }
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

Support backend_supports(std::string_view text, const Query& query) {
  check_query(query);
  const BackendNames names = names_of(text);
  std::string_view name = query.device == DeviceType::cpu ? names.cpu : names.cuda;
  if (name.empty()) {
    if (query.device == DeviceType::cuda)
      return {.ok = false, .reason = fmt::format("'{}' names no backend for GPUs", text)};
    name = kNative;
  }
  if (name == kNative) return native_supports(query);
  if (registered(name))
    throw_unavailable(name, "a registered backend answers supports() on its group only");
  return require_module(name).supports(query);
}

std::unique_ptr<Backend> make_backend(std::string_view text, BackendContext context) {
  BackendNames names = names_of(text);
  if (names.cpu.empty()) names.cpu = kNative;
  if (is_cuda_only(names.cpu))
    throw_unavailable(text, fmt::format("{} serves memory of GPUs only", names.cpu));
  if (names.cpu == names.cuda) return make_one(names.cpu, std::move(context));
  BackendContext of_host = context;
  of_host.device = {};
  auto host = make_one(names.cpu, std::move(of_host));
  if (names.cuda.empty()) return host;
  if (context.device.type == DeviceType::cpu) context.device = default_gpu(local_rank(context));
  require_gpu(context.device.index);
  return make_backend_by_device(std::move(host), make_one(names.cuda, std::move(context)));
}

}}  // namespace c10d::v0
