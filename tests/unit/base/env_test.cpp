// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/env.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <limits>
#include <set>

#include "c10d/error.h"
#include "c10d/view.h"
#include "src/base/env_table.h"
#include "src/base/suggest.h"

namespace c10d { inline namespace v0 { namespace {

// Sets a variable for the length of a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(EnvTable, HasEachNameOnceWithHelp) {
  std::set<std::string_view> names;
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_TRUE(variable.help.ends_with('.')) << variable.name;
  }
}

TEST(EnvTable, AnEmptyValueIsNone) {
  const Setting empty("C10D_BACKEND", "");
  EXPECT_EQ(env("C10D_BACKEND"), std::nullopt);
  const Setting set("C10D_BACKEND", "gloo");
  EXPECT_EQ(env("C10D_BACKEND"), "gloo");
}

TEST(EnvTable, ANameOutsideTheTableIsRefused) {
  EXPECT_THROW(env("C10D_NO_SUCH_VARIABLE"), InvalidArgument);
}

TEST(EnvTable, NumbersAreWholeAndInRange) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  {
    const Setting set("C10D_TIMEOUT", "42");
    EXPECT_EQ(env_integer("C10D_TIMEOUT", 1, 42), 42);
  }
  EXPECT_EQ(env_integer("C10D_TIMEOUT", 1, 42), std::nullopt);
  for (const char* bad :
       {"43", "0", "-1", "4x", " 4", "4 ", "0x4", "1e1", "99999999999999999999"}) {
    const Setting set("C10D_TIMEOUT", bad);
    try {
      env_integer("C10D_TIMEOUT", 1, 42);
      ADD_FAILURE() << "took '" << bad << "'";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("C10D_TIMEOUT=" + std::string(bad)),
                std::string::npos)
          << error.what();
    }
  }
  const Setting huge("C10D_TIMEOUT", "9223372036854775807");
  EXPECT_EQ(env_integer("C10D_TIMEOUT", 0, kMax), kMax);
}

TEST(EnvTable, AChoiceIsOneOfTheWordsOfTheTable) {
  EXPECT_EQ(env_choice("C10D_LOG"), std::nullopt);
  for (const char* word : {"error", "warn", "info", "debug"}) {
    const Setting set("C10D_LOG", word);
    EXPECT_EQ(env_choice("C10D_LOG"), word);
  }
  for (const char* bad : {"nonsense", "Warn", "warn ", "error warn", "e"}) {
    const Setting set("C10D_LOG", bad);
    try {
      env_choice("C10D_LOG");
      ADD_FAILURE() << "took '" << bad << "'";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                "C10D_LOG=" + std::string(bad) + " is none of: error, warn, info, debug");
    }
  }
}

TEST(EnvTable, UnknownVariablesOfOursAreFound) {
  const Setting typo("C10D_BAKEND", "gloo");
  const Setting strange("C10D_ZQXWVUTSRQPONM", "1");
  const std::vector<UnknownEnv> unknown = unknown_env();
  ASSERT_EQ(unknown.size(), 2u);
  for (const UnknownEnv& variable : unknown)
    EXPECT_EQ(variable.nearest, variable.name == "C10D_BAKEND" ? "C10D_BACKEND" : "")
        << variable.name;
}

TEST(Nearest, IsNamedBeforeAllThatIsKnown) {
  const auto message_for = [](const char* name) -> std::string {
    try {
      dtype_from_string(name);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_TRUE(message_for("f33").starts_with("unknown dtype 'f33'; did you mean f32? known: f64 "));
  EXPECT_TRUE(message_for("quad").starts_with("unknown dtype 'quad'; known: f64 f32 "));
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string_view> names = {"all_reduce", "all_gather", "reduce"};
  EXPECT_EQ(nearest("allreduce", names), "all_reduce");
  EXPECT_EQ(nearest("all_gathr", names), "all_gather");
  EXPECT_EQ(nearest("rduce", names), "reduce");
  EXPECT_EQ(nearest("broadcast", names), "");
  const std::vector<std::string_view> options = {"--role"};
  EXPECT_EQ(nearest("--frob", options), "") << "further than a third of its length";
  EXPECT_EQ(nearest("--rloe", options), "--role");
  EXPECT_EQ(nearest("", {}), "");
}

}}}  // namespace c10d::v0
