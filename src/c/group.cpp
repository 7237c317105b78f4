// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "c10d/init.h"
#include "src/c/arguments.h"
#include "src/c/failures.h"
#include "src/c/handles.h"

namespace c10d { inline namespace v0 { namespace c {
namespace {

InitOptions init_options_of(const c10d_init_options* argument) {
  const auto given = taken(argument, "options");
  InitOptions options;
  options.backend = text_or(given.backend, "");
  options.url = text_or(given.url, options.url);
  if (given.store != nullptr) options.store = given.store->store;
  if (given.size != 0) {
    options.rank = given.rank;
    options.size = given.size;
  }
  if (given.device != nullptr) options.device = *given.device;
  options.timeout = timeout_of_field(given.timeout_ns);
  options.connect_timeout = timeout_of_field(given.connect_timeout_ns);
  options.token = data_of(given.token, given.token_bytes, "token");
  options.name = text_or(given.name, options.name);
  return options;
}

// Makes a group and gives it; NULL where this rank has none.
template <class F>
c10d_code make(c10d_group** to, F make_group) noexcept {
  return call([&] {
    c10d_group*& handle = handle_of(to, "group");
    if (ProcessGroup group = make_group()) hand_out(handle, std::move(group));
  });
}

}  // namespace

extern "C" {

C10D_C_API c10d_code c10d_init_process_group(const c10d_init_options* options, c10d_group** group) {
  return make(group, [&] { return init_process_group(init_options_of(options)); });
}

C10D_C_API void c10d_group_free(c10d_group* group) { delete group; }

C10D_C_API c10d_code c10d_group_shutdown(const c10d_group* group, int64_t timeout_ns) {
  return call([&] {
    const auto timeout = timeout_of(timeout_ns);
    timeout ? group_of(group).shutdown(*timeout) : group_of(group).shutdown();
  });
}

C10D_C_API void c10d_group_abort(const c10d_group* group, const char* why) {
  if (group == nullptr) return;
  why == nullptr ? group->group.abort() : group->group.abort(why);
}

C10D_C_API int32_t c10d_group_rank(const c10d_group* group) {
  int32_t rank = -1;
  call([&] { rank = group_of(group).rank(); });
  return rank;
}

C10D_C_API int32_t c10d_group_size(const c10d_group* group) {
  int32_t size = -1;
  call([&] { size = group_of(group).size(); });
  return size;
}

C10D_C_API const char* c10d_group_id(const c10d_group* group) {
  const char* id = nullptr;
  call([&] { id = group_of(group).id().c_str(); });
  return id;
}

C10D_C_API const char* c10d_group_backend(const c10d_group* group) {
  const char* backend = nullptr;
  call([&] { backend = group_of(group).backend().c_str(); });
  return backend;
}

C10D_C_API c10d_code c10d_group_description(const c10d_group* group, c10d_bytes* text) {
  return call([&] { give(bytes_of(text, "text"), group_of(group).description()); });
}

C10D_C_API uint64_t c10d_group_sequence(const c10d_group* group) {
  uint64_t sequence = 0;
  call([&] { sequence = group_of(group).sequence(); });
  return sequence;
}

C10D_C_API c10d_code c10d_group_failure(const c10d_group* group) {
  return call([&] {
    if (const Failure* const failure = group_of(group).failure()) throw_failure(*failure);
  });
}

C10D_C_API int64_t c10d_group_timeout(const c10d_group* group) {
  int64_t timeout_ns = -1;
  call([&] { timeout_ns = group_of(group).timeout().count(); });
  return timeout_ns;
}

C10D_C_API c10d_code c10d_group_set_timeout(const c10d_group* group, int64_t timeout_ns) {
  return call([&] { group_of(group).set_timeout(Duration(timeout_ns)); });
}

C10D_C_API c10d_code c10d_group_store(const c10d_group* group, c10d_store** store) {
  return call([&] {
    c10d_store*& handle = handle_of(store, "store");
    // The store ends with the group, so that its handle is one of the group.
    const auto owner = std::make_shared<const ProcessGroup>(group_of(group));
    hand_out(handle, std::shared_ptr<Store>(owner, &owner->store()));
  });
}

C10D_C_API c10d_code c10d_group_member(const c10d_group* group, int32_t rank, c10d_member* member) {
  return call([&] {
    const std::vector<Member>& members = group_of(group).members();
    if (rank < 0 || static_cast<std::size_t>(rank) >= members.size())
      throw InvalidArgument("rank " + std::to_string(rank) + " is not in [0, " +
                            std::to_string(members.size()) + ")");
    const Member& one = members[static_cast<std::size_t>(rank)];
    fill(member, {0, one.same_host, one.pid, one.host.c_str()}, "member");
  });
}

C10D_C_API c10d_code c10d_new_group(const c10d_group* group, const int32_t* ranks, size_t count,
                                    const char* name, c10d_group** new_group) {
  return make(new_group, [&] {
    return group_of(group).new_group(array_of(ranks, count, "ranks"), text_or(name, ""));
  });
}

C10D_C_API c10d_code c10d_split(const c10d_group* group, int32_t color, int32_t key,
                                c10d_group** new_group) {
  return make(new_group, [&] {
    return group_of(group).split(color == C10D_NO_COLOR ? std::nullopt : std::optional<int>(color),
                                 key);
  });
}

C10D_C_API c10d_code c10d_split_by_host(const c10d_group* group, c10d_group** new_group) {
  return make(new_group, [&] { return group_of(group).split_by_host(); });
}

C10D_C_API c10d_code c10d_allocate(const c10d_group* group, size_t bytes, c10d_device_type device,
                                   c10d_memory** memory) {
  return call([&] {
    c10d_memory*& handle = handle_of(memory, "memory");
    const ProcessGroup& owner = group_of(group);
    const bool on_cpu = device_type_of(device) == DeviceType::cpu;
    hand_out(handle, owner.allocate<unsigned char>(bytes, on_cpu ? Device{} : owner.device()),
             owner.size());
  });
}

C10D_C_API void* c10d_memory_data(const c10d_memory* memory) {
  return memory == nullptr ? nullptr : memory->buffer.device_data();
}

C10D_C_API size_t c10d_memory_bytes(const c10d_memory* memory) {
  return memory == nullptr ? 0 : memory->buffer.size();
}

C10D_C_API void* c10d_memory_peer_data(const c10d_memory* memory, int32_t rank) {
  if (memory == nullptr || rank < 0 || rank >= memory->ranks) return nullptr;
  return memory->buffer.peer_data(rank);
}

C10D_C_API void c10d_memory_free(c10d_memory* memory) { delete memory; }

}  // extern "C"

}}}  // namespace c10d::v0::c
