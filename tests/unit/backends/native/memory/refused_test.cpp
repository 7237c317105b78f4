// SPDX-License-Identifier: BSD-3-Clause
// A kernel that lets no process reach another's memory: containers do that by seccomp.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <numeric>

#include "src/backends/native/memory/cma.h"
#include "src/sync/progress_thread.h"
#include "tests/unit/backends/native/ranks.h"

namespace c10d { inline namespace v0 { namespace {

using Values = std::vector<std::int32_t>;

bool this_thread_reads() {
  std::uint64_t word = 0;
  native::Identity identity{};
  native::introduce(identity, word);
  return native::is_readable(identity);
}

// For this thread, until it ends.
void refuse_this_thread() {
  constexpr auto kNumber = static_cast<unsigned>(offsetof(seccomp_data, nr));
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

bool kernel_can_refuse() {
  bool can = false;
  std::thread([&] {
    if (!this_thread_reads()) return;
    refuse_this_thread();
    can = !this_thread_reads();
  }).join();
  return can;
}

// Long enough for the kernel's way, were it open.
void run_every_move(TestRank& self) {
  constexpr std::size_t kCount = 300'003;
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto me = static_cast<std::size_t>(self.rank());
  const auto all_of = [](std::size_t count, std::size_t value) {
    return Values(count, static_cast<std::int32_t>(value));
  };
  const Values own = all_of(kCount, me);
  Values each, one(kCount), many(kCount * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    each.insert(each.end(), kCount, static_cast<int>(rank));

  self.run(Broadcast{one, self.rank() == 1 ? own : one, 1});
  EXPECT_EQ(one, all_of(kCount, 1));
  self.run(AllGather{many, own});
  EXPECT_EQ(many, each);
  self.run(AllToAll{many, each});
  EXPECT_EQ(many, all_of(kCount * ranks, me));
  Values gathered = space<std::int32_t>(me == 1 ? kCount * ranks : 0);
  self.run(Gather{gathered, own, 1});
  if (me == 1) {
    EXPECT_EQ(gathered, each);
  }
  self.run(Scatter{one, each, 1});
  EXPECT_EQ(one, own);
  self.run(AllReduce{one, own, ReduceOp::sum});
  EXPECT_EQ(one, all_of(kCount, ranks * (ranks - 1) / 2));
  self.run(ReduceScatter{one, each, ReduceOp::sum});
  EXPECT_EQ(one, all_of(kCount, ranks * me));
  const int next = (self.rank() + 1) % self.size();
  const Work sent = self.start_async(Send{own, next, 0});
  self.run(Recv{one, kAnySource, 0});
  EXPECT_EQ(one, all_of(kCount, (me + ranks - 1) % ranks));
  sent.wait();
}

// All of it works, though nobody, or one rank alone, may read; and no line in the log says so.
TEST(NativeRefused, EveryOpGoesThroughStaging) {
  if (!kernel_can_refuse()) GTEST_SKIP() << "no seccomp here, or nobody may read anyway";
  // Else the progress thread might start from a rank that may not read, and inherit that.
  add_progress([] { return Poll::done; });
  for (const int size : {2, 3})
    for (const bool all : {true, false}) {
      testing::internal::CaptureStderr();
      as_ranks(
          size,
          [](TestRank& self) {
            EXPECT_FALSE(self.team().cost_model().host().cma);
            run_every_move(self);
          },
          nullptr,
          [&](int rank) {
            if (all || rank == 1) refuse_this_thread();
          });
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    }
}

}}}  // namespace c10d::v0
