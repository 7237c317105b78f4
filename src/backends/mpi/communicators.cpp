// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/mpi/communicators.h"

#include <sched.h>

#include <array>
#include <climits>
#include <memory>
#include <utility>

#include "src/backends/mpi/mpi_types.h"
#include "src/backends/mpi/runtime.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 30;  // elements in a derived type's unit

// A duplicate in the making: MPI writes it when it is done.
struct Duplicate {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;

  bool is_done() {
    const auto turn = mpi_turn();
    int flag = 0;
    check_mpi(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    return flag != 0;
  }
};

MPI_Comm duplicate_of(MPI_Comm comm, const Communicators::Look& look) {
  auto duplicate = std::make_unique<Duplicate>();
  {
    const auto turn = mpi_turn();
    check_mpi(MPI_Comm_idup(comm, &duplicate->comm, &duplicate->request));
  }
  try {
    for (; !duplicate->is_done(); sched_yield()) look();
  } catch (...) {
    keep_for_good(std::move(duplicate));
    throw;
  }
  const auto turn = mpi_turn();
  MPI_Comm_set_errhandler(duplicate->comm, MPI_ERRORS_RETURN);
  return duplicate->comm;
}

MPI_Comm make_communicator(MPI_Comm parent, const std::vector<int>& ranks, int tag) {
  const auto turn = mpi_turn();
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(parent, &all));
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members));
  check_mpi(MPI_Comm_create_group(parent, members, tag, &comm));
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

}  // namespace

Communicators Communicators::of(MPI_Comm comm, const Look& look) {
  Communicators comms;
  comms.collectives = comm;
  comms.headers = duplicate_of(comm, look);
  comms.payloads = duplicate_of(comm, look);
  const auto turn = mpi_turn();
  check_mpi(MPI_Comm_rank(comm, &comms.rank));
  check_mpi(MPI_Comm_size(comm, &comms.size));
  return comms;
}

Communicators Communicators::duplicate(MPI_Comm parent, const Look& look) {
  return of(duplicate_of(parent, look), look);
}

Communicators Communicators::subset(MPI_Comm parent, const std::vector<int>& ranks, int tag,
                                    const Look& look) {
  const auto comm = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  call_apart([=] { *comm = make_communicator(parent, ranks, tag); }, look);
  return of(*comm, look);
}

void Communicators::free_communicators() noexcept {
  for (MPI_Comm* comm : {&collectives, &headers, &payloads})
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

Communicators::Elements Communicators::elements(std::size_t count, DType dtype) {
  const MPI_Datatype element = move_type(dtype);
  if (count <= INT_MAX) return {static_cast<int>(count), element};
  // Blocks of 2^30 elements, then the rest, as one type whose extent is exactly what it holds.
  MPI_Datatype block = MPI_DATATYPE_NULL, whole = MPI_DATATYPE_NULL, exact = MPI_DATATYPE_NULL;
  check_mpi(MPI_Type_contiguous(static_cast<int>(kBlock), element, &block));
  const std::size_t blocks = count / kBlock;
  const std::array<int, 2> lengths = {static_cast<int>(blocks), static_cast<int>(count % kBlock)};
  const std::array<MPI_Aint, 2> places = {0,
                                          static_cast<MPI_Aint>(blocks * kBlock * size_of(dtype))};
  const std::array<MPI_Datatype, 2> kinds = {block, element};
  check_mpi(MPI_Type_create_struct(2, lengths.data(), places.data(), kinds.data(), &whole));
  check_mpi(
      MPI_Type_create_resized(whole, 0, static_cast<MPI_Aint>(count * size_of(dtype)), &exact));
  MPI_Type_free(&block);
  MPI_Type_free(&whole);
  check_mpi(MPI_Type_commit(&exact));
  types_.push_back(exact);
  return {1, exact};
}

void Communicators::free_types() noexcept {
  for (MPI_Datatype& type : types_) MPI_Type_free(&type);
  types_.clear();
}

const Communicators::IntCounts& Communicators::IntCounts::set(std::span<const std::size_t> sizes) {
  counts.clear();
  displacements.clear();
  std::size_t first = 0;
  for (const std::size_t shard : sizes) {
    counts.push_back(static_cast<int>(shard));
    displacements.push_back(static_cast<int>(first));
    first += shard;
  }
  return *this;
}

}}  // namespace c10d::v0
