// SPDX-License-Identifier: BSD-3-Clause
#include "bench/measure/native_algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <thread>

#include "bench/model/cases.h"
#include "c10d/error.h"
#include "c10d/init.h"

namespace c10d::bench {
namespace {

struct Wish {
  std::string_view op;  // empty: any
  std::string_view name;
};

std::vector<Wish> wishes_of(std::string_view asked) {
  std::vector<Wish> wishes;
  while (!asked.empty()) {
    const std::string_view item = asked.substr(0, asked.find(','));
    asked.remove_prefix(std::min(asked.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      wishes.push_back({"", item});
    else
      wishes.push_back({item.substr(0, equals), item.substr(equals + 1)});
  }
  return wishes;
}

bool is_named(std::string_view algorithm, std::string_view name) {
  return algorithm == name ||
         (algorithm.starts_with(name) && algorithm.substr(name.size()).starts_with('/'));
}

void add_names(const ProcessGroup& group, OpAlgorithms& op, OpKind kind) {
  constexpr std::uint64_t kBytes = 1 << 20;
  for (const bool registered : {false, true})
    for (const PlanOption& option : group.plan({kind, DType::f32, kBytes, registered}).options)
      if (std::find(op.names.begin(), op.names.end(), option.name) == op.names.end())
        op.names.push_back(option.name);
}

}  // namespace

std::vector<OpAlgorithms> native_algorithms(int ranks) {
  const std::shared_ptr<Store> store = make_hash_store();
  std::vector<OpAlgorithms> all;
  const auto be_rank = [&](int rank) {
    InitOptions init;
    init.backend = "native";
    init.store = store;
    init.rank = rank;
    init.size = ranks;
    init.timeout = std::chrono::seconds(30);
    ProcessGroup group = init_process_group(std::move(init));
    if (rank == 0) {
      for (const OpFacts& facts : op_facts()) {
        OpAlgorithms op{std::string(facts.name), {}};
        add_names(group, op, facts.kind);
        std::sort(op.names.begin(), op.names.end());
        all.push_back(std::move(op));
      }
    }
    group.barrier();
  };
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        try {
          be_rank(rank);
        } catch (...) {
          failures[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return all;
}

std::string folded(const std::vector<std::string>& names) {
  // Of each algorithm, what stands at its second and third place.
  std::map<std::string, std::vector<std::vector<std::string>>> parts;
  for (const std::string& name : names) {
    std::vector<std::string> words;
    for (std::size_t from = 0; from <= name.size();) {
      const std::size_t to = std::min(name.find('/', from), name.size());
      words.push_back(name.substr(from, to - from));
      from = to + 1;
    }
    auto& places = parts[words.front()];
    places.resize(std::max(places.size(), words.size() - 1));
    for (std::size_t i = 1; i < words.size(); ++i)
      if (auto& place = places[i - 1];
          std::find(place.begin(), place.end(), words[i]) == place.end())
        place.push_back(words[i]);
  }
  std::string text;
  for (auto& [algorithm, places] : parts) {
    text += (text.empty() ? "" : " ") + algorithm;
    for (auto& place : places) {
      std::sort(place.begin(), place.end(), [](const std::string& a, const std::string& b) {
        return a.size() != b.size() ? a.size() < b.size() : a < b;
      });
      text += fmt::format("/{{{}}}", fmt::join(place, ","));
    }
  }
  return text;
}

bool is_as_asked(std::string_view op, std::string_view algorithm, std::string_view asked) {
  bool content = true;
  for (const Wish& wish : wishes_of(asked)) {
    if (!wish.op.empty() && wish.op != op) continue;
    if (is_named(algorithm, wish.name)) return true;
    content = false;
  }
  return content;
}

void refuse_unknown_algorithm(std::string_view asked, int ranks) {
  const std::vector<OpAlgorithms> all = native_algorithms(ranks);
  for (const Wish& wish : wishes_of(asked)) {
    std::vector<std::string_view> names;
    bool known = false;
    for (const OpAlgorithms& op : all) {
      if (!wish.op.empty() && wish.op != op.op) continue;
      for (const std::string& name : op.names) {
        known = known || is_named(name, wish.name);
        names.push_back(name);
        names.push_back(std::string_view(name).substr(0, name.find('/')));
      }
    }
    if (known) continue;
    const std::string_view near = nearest_name(wish.name, names);
    throw InvalidArgument(
        fmt::format("--algo {}: native has no algorithm {}{}; {}c10d-bench list algos names them",
                    asked, wish.name, wish.op.empty() ? "" : fmt::format(" for {}", wish.op),
                    near.empty() ? "" : fmt::format("did you mean {}? ", near)));
  }
}

}  // namespace c10d::bench
