// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "c10d/error.h"
#include "c10d/spi/plan.h"
#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

// What a caller gets, with all that its pointers point to.
struct Backends : c10d_backends {
  std::vector<BackendInfo> known;
  std::vector<c10d_backend_info> items;
  std::vector<const c10d_backend_info*> pointers;
};
struct Plan : c10d_plan {
  PlanReport known;
  std::vector<c10d_plan_option> items;
  std::vector<const c10d_plan_option*> pointers;
};

template <class T>
std::vector<const T*> pointers_to(const std::vector<T>& items) {
  std::vector<const T*> pointers;
  for (const T& item : items) pointers.push_back(&item);
  return pointers;
}

std::unique_ptr<Backends> to_c(std::vector<BackendInfo> known) {
  auto list = std::make_unique<Backends>();
  list->known = std::move(known);
  for (const BackendInfo& one : list->known)
    list->items.push_back({one.name.c_str(), one.available, one.needs_launcher, one.cuda_only,
                           one.reason.c_str(), one.version.c_str(), one.path.c_str()});
  list->pointers = pointers_to(list->items);
  list->count = list->pointers.size();
  list->infos = list->pointers.data();
  return list;
}

std::unique_ptr<Plan> to_c(PlanReport known) {
  auto plan = std::make_unique<Plan>();
  plan->known = std::move(known);
  for (const PlanOption& one : plan->known.options)
    plan->items.push_back({one.name.c_str(), one.us, one.measured});
  plan->pointers = pointers_to(plan->items);
  plan->count = plan->pointers.size();
  plan->options = plan->pointers.data();
  plan->bound_us = plan->known.bound_us;
  return plan;
}

Query query_of(const c10d_query* argument) {
  const auto given = taken(&required(argument, "query"), "query");
  return {.op = op_from_string(text_of(given.op, "op")),
          .dtype = dtype_of_c(given.dtype),
          .reduce_op = reduce_kind_of(given.reduce_op),
          .device = device_type_of(given.device_type),
          .any_source = given.any_source != 0,
          .tags_out_of_order = given.tags_out_of_order != 0,
          .to_self = given.to_self != 0,
          .captured = given.captured != 0};
}

void require(const Support& support) {
  if (!support) throw_failure({.code = Code::unsupported, .message = support.reason});
}

}  // namespace

extern "C" {

C10D_C_API const char* c10d_version(void) {
  static const std::string text = version();
  return text.c_str();
}

C10D_C_API c10d_code c10d_detect_launch(c10d_launch_info* info) {
  return call([&] {
    const LaunchInfo found = detect_launch();
    c10d_launch_info known{0, found.rank, found.size, found.local_rank, found.local_size, ""};
    found.launcher.copy(known.launcher, sizeof(known.launcher) - 1);
    fill(info, known, "info");
  });
}

C10D_C_API c10d_code c10d_list_backends(c10d_backends** backends) {
  return call([&] { handle_of(backends, "backends") = to_c(list_backends()).release(); });
}

C10D_C_API void c10d_backends_free(c10d_backends* backends) {
  delete static_cast<Backends*>(backends);
}

C10D_C_API c10d_code c10d_supports(const c10d_group* group, const c10d_query* query) {
  return call([&] { require(group_of(group).supports(query_of(query))); });
}

C10D_C_API c10d_code c10d_backend_supports(const char* name, const c10d_query* query) {
  return call([&] { require(backend_supports(text_of(name, "name"), query_of(query))); });
}

C10D_C_API c10d_code c10d_group_plan(const c10d_group* group, const c10d_plan_query* query,
                                     c10d_plan** plan) {
  return call([&] {
    c10d_plan*& handle = handle_of(plan, "plan");
    const auto given = taken(&required(query, "query"), "query");
    const PlanQuery wanted{.op = op_from_string(text_of(given.op, "op")),
                           .dtype = dtype_of_c(given.dtype),
                           .bytes = given.bytes,
                           .registered = given.registered != 0};
    handle = to_c(group_of(group).plan(wanted)).release();
  });
}

C10D_C_API void c10d_plan_free(c10d_plan* plan) { delete static_cast<Plan*>(plan); }

}  // extern "C"

}}}  // namespace c10d::v0::c
