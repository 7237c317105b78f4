// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "c10d/c.h"
#include "python/torch/src/pytorch.h"

// Tensors as the buffers of ops.
namespace c10d_torch {

// What an op does with elements: types that we cannot add can still be moved, as bytes.
enum class Use { moved, reduced };

// Elements in a row of memory.
struct View {
  void* data = nullptr;
  std::size_t count = 0;
  c10d_dtype dtype = C10D_U8;
  std::size_t each = 1;  // elements of this view for one of the tensor
};

// Throws Unsupported or Invalid unless an op can use the tensor.
void check_tensor(const at::Tensor& tensor, const char* what);
// The only tensor of a list: one rank is one process, with one tensor for an op.
at::Tensor& only(Tensors& tensors, const char* what);
Tensors& only(std::vector<Tensors>& lists, const char* what);
// Throws Invalid unless there are `count` tensors, all of the type of `like`.
void check_list(const Tensors& tensors, std::size_t count, const at::Tensor& like,
                const char* what);

// The elements of a contiguous tensor.
View view_of(const at::Tensor& contiguous, Use use);
// Whether its elements lie in a row and mean what they are.
bool is_plain(const at::Tensor& tensor);
// The same elements in a row: the tensor, or a copy.
at::Tensor plain(const at::Tensor& tensor);
// Memory for elements of that type in a row.
at::Tensor empty_like(const at::Tensor& tensor, std::int64_t count);

// Tensors one after the other, and back.
std::int64_t total(const Tensors& tensors);
void pack(const Tensors& from, const at::Tensor& flat);
void unpack(const at::Tensor& flat, const Tensors& to);
// Number of elements of each tensor; whether all are the same.
std::vector<std::size_t> counts_of(const Tensors& tensors);
bool all_same(const std::vector<std::size_t>& counts);

}  // namespace c10d_torch
