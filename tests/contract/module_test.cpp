// SPDX-License-Identifier: BSD-3-Clause
// backend.h: modules that are found on C10D_BACKEND_PATH, and those that are refused.
#include <array>
#include <fstream>
#include <map>

#include "c10d/spi/backend.h"
#include "tests/contract/ranks.h"
#include "tests/contract/variables.h"
#include "tests/temporary_directory.h"

namespace c10d::contract { namespace {

// All that lies in C10D_TEST_MODULES, and a text that is no library.
class Modules : public testing::Test {
 protected:
  Modules() {
    std::ofstream(text_) << "no library\n";
    for (BackendInfo& info : list_backends()) infos_.emplace(info.name, std::move(info));
  }

  const TemporaryDirectory folder_;
  const std::string text_ = folder_ / "libc10d_text.so";
  const Variables path_{
      Environment{{"C10D_BACKEND_PATH", std::string(C10D_TEST_MODULES) + ":" + folder_.path()}}};
  std::map<std::string, BackendInfo> infos_;
};

TEST_F(Modules, OnThePathServeGroups) {
  const BackendInfo& info = infos_["idle"];
  EXPECT_TRUE(info.available) << info.reason;
  EXPECT_EQ(info.version, "7.7");
  EXPECT_TRUE(info.needs_launcher);
  EXPECT_FALSE(infos_["native"].needs_launcher);
  EXPECT_EQ(info.path, std::string(C10D_TEST_MODULES) + "/libc10d_idle.so");
  EXPECT_TRUE(backend_supports("idle", {.op = OpKind::barrier}));
  EXPECT_EQ(backend_supports("idle", {.op = OpKind::gather}).reason, "it does nothing");
  run_ranks("idle", 2, [](ProcessGroup& group) {
    EXPECT_EQ(group.backend(), "idle");
    EXPECT_EQ(group.description(), "idle as world");
    group.barrier();
    std::array<float, 1> own{};
    std::array<float, 2> all{};
    EXPECT_EQ(code_of([&] { group.gather(all, own, 0); }), Code::unsupported);
    // The defaults of Backend: plain memory, no choice of algorithms.
    EXPECT_EQ(group.allocate<float>(3).size(), 3u);
    EXPECT_TRUE(group.plan({}).options.empty());
  });
}

TEST_F(Modules, OfAnotherAbiOrNoneAreRefusedWithTheReason) {
  const std::pair<const char*, const char*> rows[] = {
      {"old", "has module ABI 1 "},
      {"small", "(8 bytes)"},
      {"bare", "lacks the function c10d_backend_module"},
      {"text", "libc10d_text.so"},
  };
  for (const auto& [name, reason] : rows) {
    SCOPED_TRACE(name);
    const BackendInfo& info = infos_[name];
    EXPECT_FALSE(info.available);
    EXPECT_NE(info.reason.find(reason), std::string::npos) << info.reason;
    EXPECT_TRUE(info.path.ends_with("/libc10d_" + std::string(name) + ".so")) << info.path;
    const std::string& backend = info.name;
    for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
             [&] { backend_supports(backend, {.op = OpKind::barrier}); },
             [&] { make_backend(backend, {}); }}) {
      const Failure failure = failure_of(call);
      EXPECT_EQ(failure.code, Code::unsupported);
      EXPECT_NE(failure.message.find(reason), std::string::npos) << failure.message;
    }
  }
}

}}  // namespace c10d::contract
