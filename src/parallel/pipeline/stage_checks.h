// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "c10d/parallel/pipeline.h"
#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {

// The bytes of a shape; none when it has too many or negative dimensions, or more bytes than
// `limit`.
std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, DType dtype,
                                    std::size_t limit);

// What goes before an activation: its dtype, the number of dimensions, and these.
using ActivationHeader = std::array<std::int64_t, 2 + kMaxActivationDims>;
ActivationHeader header_of(const Activation& activation);
// Memory for what a header announces; none when that makes no sense or has more than `limit` bytes.
std::optional<Activation> make_activation(const ActivationHeader& header, std::size_t limit);

// What is wrong with an activation that a stage returned; empty when nothing is.
std::string problem_of(const Activation& activation, std::size_t limit);
// Throws InvalidArgument unless `stages` are those of the rank.
void check_stages(const std::map<int, Stage*>& stages, std::span<const int> rank_of_stage,
                  int rank);
void check_tied(std::span<const TiedWeight> all, int stages);
// Of its gradients in the first stage and in another one of the same rank.
void check_tied(const TiedWeight& tied, const View& first, int stage, const View& other);

}}}  // namespace c10d::v0::parallel
