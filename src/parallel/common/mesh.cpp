// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/parallel/common/throw_invalid.h"

namespace c10d { inline namespace v0 { namespace parallel {

Mesh::Mesh(const ProcessGroup& world, std::vector<MeshDimension> dimensions)
    : world_(world), dimensions_(std::move(dimensions)) {
  std::int64_t product = 1;
  std::string text;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    const auto& [name, size] = dimensions_[i];
    if (size < 1 || name.empty())
      throw_invalid(
          "Mesh: dimension \"{}\" has size {}; give every one a name and a size from 1 on", name,
          size);
    for (std::size_t j = 0; j < i; ++j)
      if (dimensions_[j].name == name) throw_invalid("Mesh: two dimensions are named {}", name);
    product = std::min<std::int64_t>(product * size, std::int64_t{1} << 31);
    text += fmt::format("{}{} {}", i == 0 ? "" : " x ", name, size);
  }
  if (product != world.size())
    throw_invalid("Mesh: {} does not make up the {} ranks of the world", text, world.size());
}

std::size_t Mesh::index_of(std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    if (dimensions_[i].name == name) return i;
    names += fmt::format("{}{}", i == 0 ? "" : ", ", dimensions_[i].name);
  }
  throw_invalid("Mesh: no dimension is named {}; there are: {}", name, names);
}

int Mesh::position(int rank, std::size_t dimension) const noexcept {
  for (std::size_t i = dimensions_.size() - 1; i > dimension; --i) rank /= dimensions_[i].size;
  return rank % dimensions_[dimension].size;
}

int Mesh::size(std::string_view name) const { return dimensions_[index_of(name)].size; }
int Mesh::rank(std::string_view name) const { return position(world_.rank(), index_of(name)); }

std::vector<int> Mesh::ranks(std::span<const std::string_view> names) const {
  std::vector<bool> varies(dimensions_.size());
  for (const std::string_view name : names) varies[index_of(name)] = true;
  std::vector<int> found;
  for (int other = 0; other < world_.size(); ++other) {
    bool with_us = true;
    for (std::size_t i = 0; i < dimensions_.size(); ++i)
      with_us = with_us && (varies[i] || position(other, i) == position(world_.rank(), i));
    if (with_us) found.push_back(other);
  }
  return found;
}

ProcessGroup Mesh::sub(std::span<const std::string_view> names) {
  const std::vector<int> members = ranks(names);
  std::string key;  // in the order of the dimensions, whatever that of `names`
  for (const MeshDimension& dimension : dimensions_)
    if (std::find(names.begin(), names.end(), dimension.name) != names.end())
      key += fmt::format("{}{}", key.empty() ? "" : "-", dimension.name);
  const auto known = groups_.find(key);
  if (known != groups_.end()) return known->second;
  return groups_.emplace(key, world_.new_group(members, key)).first->second;
}

}}}  // namespace c10d::v0::parallel
