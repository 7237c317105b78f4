// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/rank.h"

#include <exception>
#include <numeric>
#include <utility>

#include "c10d/error.h"
#include "tests/conformance/collective.h"

namespace c10d::conformance {
namespace {

constexpr std::size_t kAllocated = std::size_t{2} << 20;
constexpr std::size_t kFailuresKept = 20;

}  // namespace

void Report::fail(std::string what) {
  if (++failed <= kFailuresKept) failures.push_back(std::move(what));
}

Rank::Rank(ProcessGroup world) : world_(with_memory(std::move(world))) {
  if (world_.group.device().type != DeviceType::cpu) buffers_.use_gpu(world_.group.device());
  const int n = world_.group.size();
  std::vector<int> dealt;
  for (const int parity : {1, 0})
    for (int r = n - 1; r >= 0; --r)
      if (r % 2 == parity) dealt.push_back(r);
  dealt_ = with_memory(world_.group.new_group(dealt));
  if (n < 3 || world_.group.rank() == 1) return;
  std::vector<int> all_but_1 = {0};
  for (int r = 2; r < n; ++r) all_but_1.push_back(r);
  subgroup_ = with_memory(world_.group.new_group(all_but_1));
}

Rank::Group Rank::with_memory(ProcessGroup group) {
  Buffer<std::uint8_t> memory = group.allocate<std::uint8_t>(kAllocated, group.device());
  return {std::move(group), std::move(memory)};
}

const Buffer<std::uint8_t>* Rank::memory_for(const Case& c, const Group& g) const {
  const bool allocated =
      c.memory == Memory::allocated || (c.memory == Memory::mixed && g.group.rank() % 2 == 1);
  return allocated ? &g.memory : nullptr;
}

Report Rank::run(const std::vector<Case>& cases) {
  report_ = {};
  report_.results.assign(cases.size(), 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    try {
      result_ = 0;
      run_case(cases[i]);
      report_.results[i] = result_;
    } catch (const std::exception& error) {
      report_.fail(describe(cases[i]) + ": threw " + error.what());
      world_.group.abort("a conformance case threw");
      break;
    }
  }
  return std::move(report_);
}

void Rank::run_case(const Case& c) {
  Group& g = c.members == Members::world      ? world_
             : c.members == Members::subgroup ? subgroup_
                                              : dealt_;
  if (!g.group) return;
  const Query query{.op = c.op,
                    .dtype = c.numbers.dtype,
                    .reduce_op = c.numbers.op.kind,
                    .device = g.group.device().type,
                    .any_source = c.exchange == Exchange::any_source,
                    .tags_out_of_order = c.exchange == Exchange::ring_tags};
  if (const Support support = g.group.supports(query); !support)
    return refuses(c, g.group, support);
  if (c.exchange == Exchange::collective)
    run_collective(c, g);
  else
    run_exchange(c, g);
}

// What supports() denies must fail as unsupported, and leave the group as it was.
void Rank::refuses(const Case& c, ProcessGroup& group, const Support& support) {
  ++report_.skipped[support.reason];
  if (c.exchange == Exchange::any_source && group.rank() != 0) return;  // it sends, which may be
  if (c.exchange == Exchange::ring_tags) return;                        // each of its calls may be
  if (support.reason.empty()) report_.fail(describe(c) + ": unsupported without a reason");
  Case apart = c;
  apart.in_place = false;
  try {
    if (is_point_to_point(c.op))
      refused_message(c, group);
    else
      Collective(apart, group.rank(), group.size(), buffers_, nullptr).call(group, c.async).wait();
    report_.fail(describe(c) + ": ran, though supports() says: " + support.reason);
  } catch (const DistError& error) {
    buffers_.download();  // nothing is on its way when the memory goes
    if (error.code() != Code::unsupported)
      report_.fail(describe(c) + ": not refused as unsupported: " + error.what());
  }
}

void Rank::refused_message(const Case& c, ProcessGroup& group) const {
  const View nothing(nullptr, 0, c.numbers.dtype, group.device());
  if (c.exchange == Exchange::any_source)
    group.recv(nothing, kAnySource);
  else
    group.send(nothing, group.rank());
}

void Rank::run_collective(const Case& c, Group& g) {
  const Collective collective(c, g.group.rank(), g.group.size(), buffers_, memory_for(c, g));
  collective.call(g.group, c.async).wait();
  buffers_.download();
  for (const std::string& what : collective.wrong()) check(c, what);
  result_ = collective.result();
  ++report_.checked;
}

void Rank::check(const Case& c, const std::string& difference) {
  if (!difference.empty())
    report_.fail(describe(c) + ": rank " + std::to_string(world_.group.rank()) + ": " + difference);
}

}  // namespace c10d::conformance
