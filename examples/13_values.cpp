// SPDX-License-Identifier: BSD-3-Clause
// Values instead of buffers: a number, a string, a vector of any length, an object of yours.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "c10d/init.h"
#include "c10d/values.h"

namespace shop {

struct Order {
  std::string item;
  int pieces = 0;
};
// How an object travels: c10d finds these two functions by the namespace of the type.
std::string to_bytes(const Order& order) { return std::to_string(order.pieces) + " " + order.item; }
Order from_bytes(std::string_view bytes, std::type_identity<Order>) {
  const std::string text(bytes);
  const std::size_t blank = text.find(' ');
  return {text.substr(blank + 1), std::stoi(text)};
}

}  // namespace shop

int main() try {
  auto group = c10d::init_process_group();
  const int pieces = group.all_reduce(group.rank() + 1);
  const std::string run = c10d::broadcast(group, std::string("run 7"), 0);  // rank 0's, everywhere

  // Rank r brings r numbers. The parts arrive by rank, each with its own length.
  const std::vector<double> mine(static_cast<std::size_t>(group.rank()), 0.5);
  const std::vector<std::vector<double>> all = c10d::all_gather(group, mine);

  const shop::Order order{"nail", group.rank() + 1};
  int ordered = 0;
  for (const shop::Order& one : c10d::gather(group, order, 0)) ordered += one.pieces;
  if (group.rank() == 0)
    std::printf("%s: %d pieces ordered, the last rank brought %zu numbers\n", run.c_str(), ordered,
                all.back().size());
  return all.back().size() + 1 == all.size() && ordered == (group.rank() == 0 ? pieces : 0) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
