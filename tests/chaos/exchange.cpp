// SPDX-License-Identifier: BSD-3-Clause
// Messages of a step: the tag is the step's number, so that those of a step that a rank left out
// are nobody else's.
#include <array>
#include <list>
#include <memory>
#include <utility>

#include "tests/chaos/rank.h"

namespace c10d::chaos {
namespace {

class Messages {
 public:
  Messages(ProcessGroup& group, const Case& c, int step)
      : group_(group), c_(c), tag_(static_cast<std::uint32_t>(step)), bytes_(bytes()) {}

  // What went wrong.
  std::string run() {
    const int rank = group_.rank(), n = group_.size();
    const int to = (rank + 1) % n, from = (rank + n - 1) % n;
    switch (c_.exchange) {
      case Exchange::ring_blocking:
        return pair(n);
      case Exchange::any_source:
        return any_source(n);
      case Exchange::ring_tags: {
        const Work received = group_.irecv(input(), from, tag_);
        const Work sent = group_.isend(output(), to, tag_);
        received.wait();
        sent.wait();
        return check(from);
      }
      default: {
        Batch batch = group_.batch();
        batch.add(Send{output(), to, tag_});
        batch.add(Recv{input(), from, tag_});
        if (c_.id % 2 == 0)
          batch.submit_async().wait();
        else
          batch.submit();
        return check(from);
      }
    }
  }

 private:
  std::size_t bytes() const { return c_.size * size_of(c_.numbers.dtype); }
  View input() {
    in_.assign(bytes_ + 1, std::byte{0xa5});
    return {in_.data(), c_.size, c_.numbers.dtype};
  }
  ConstView output() {
    out_.resize(bytes_ + 1);
    conformance::fill(c_.numbers, group_.rank(), 0, out_.data(), c_.size);
    return {out_.data(), c_.size, c_.numbers.dtype};
  }
  std::string check(int from) const {
    std::vector<std::byte> expected(bytes_ + 1);
    conformance::fill(c_.numbers, from, 0, expected.data(), c_.size);
    if (in_.back() != std::byte{0xa5}) return "wrote outside of the message";
    return conformance::difference(c_.numbers.dtype, expected.data(), in_.data(), c_.size);
  }
  std::string pair(int n) {
    const int from = static_cast<int>(c_.root) % n;
    const int to = (from + 1 + static_cast<int>(c_.id) % (n - 1)) % n;
    if (group_.rank() == from) group_.send(output(), to, tag_);
    if (group_.rank() != to) return {};
    group_.recv(input(), from, tag_);
    return check(from);
  }
  std::string any_source(int n) {
    const int to = static_cast<int>(c_.root) % n;
    if (group_.rank() != to) {
      group_.send(output(), to, tag_);
      return {};
    }
    std::array<bool, kMaxRanks> heard{};
    for (int i = 1; i < n; ++i) {
      const Work work = group_.irecv(input(), kAnySource, tag_);
      work.wait();
      const int from = work.received().source;
      if (from < 0 || from >= n || from == to || heard[static_cast<std::size_t>(from)])
        return "a message of rank " + std::to_string(from) + " that cannot be";
      heard[static_cast<std::size_t>(from)] = true;
      if (std::string wrong = check(from); !wrong.empty()) return wrong;
    }
    return {};
  }

  ProcessGroup& group_;
  const Case& c_;
  const std::uint32_t tag_;
  const std::size_t bytes_;
  std::vector<std::byte> in_, out_;
};

}  // namespace

void CaseRank::exchange(int index, const Case& c) {
  auto messages = std::make_unique<Messages>(group_of(index), c, index);
  try {
    check(index, messages->run());
  } catch (const DistError&) {
    static std::list<std::unique_ptr<Messages>> kept;  // see keep_for_mpi()
    if (place_.backend == "mpi") kept.push_back(std::move(messages));
    throw;
  }
}

}  // namespace c10d::chaos
