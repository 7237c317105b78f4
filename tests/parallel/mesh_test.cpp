// SPDX-License-Identifier: BSD-3-Clause
#include "c10d/parallel/mesh.h"

#include "tests/contract/ranks.h"

namespace c10d::parallel { namespace {

using MeshOn = contract::OnBackend;

TEST_P(MeshOn, PositionsAndGroups) {
  run(8, [](ProcessGroup& world) {
    const int rank = world.rank();
    Mesh mesh(world, {{"pp", 2}, {"dp", 2}, {"tp", 2}});
    EXPECT_EQ(mesh.rank("pp"), rank / 4);
    EXPECT_EQ(mesh.rank("dp"), rank / 2 % 2);
    EXPECT_EQ(mesh.rank("tp"), rank % 2);
    EXPECT_EQ(mesh.size("dp"), 2);

    // Sums of the ranks of each group.
    const auto sum = [&](const ProcessGroup& group) {
      std::vector<std::int32_t> value{rank};
      group.all_reduce(value);
      return value[0];
    };
    EXPECT_EQ(sum(mesh.sub("tp")), rank / 2 * 4 + 1);
    EXPECT_EQ(sum(mesh.sub("pp")), rank % 4 * 2 + 4);
    EXPECT_EQ(mesh.sub("dp").rank(), mesh.rank("dp"));
    EXPECT_EQ(sum(mesh.sub({"pp", "tp"})), (rank / 2 % 2) * 8 + 10);
    EXPECT_EQ(mesh.sub({"tp", "pp"}).id(), mesh.sub({"pp", "tp"}).id());  // the same dimensions
    EXPECT_EQ(mesh.sub("tp").id(), mesh.sub("tp").id());
    EXPECT_EQ(mesh.sub({"pp", "dp", "tp"}).size(), 8);
    EXPECT_EQ(mesh.sub(std::span<const std::string_view>()).size(), 1);
  });
}

// Ranks 2 and 3 make their group only after ranks 0 and 1 have used theirs.
TEST_P(MeshOn, AGroupWaitsForItsMembersAlone) {
  contract::Latch first_used(2);
  run(4, [&](ProcessGroup& world) {
    Mesh mesh(world, {{"dp", 2}, {"tp", 2}});
    if (mesh.rank("dp") == 1) first_used.wait();
    contract::expect_usable(mesh.sub("tp"));
    if (mesh.rank("dp") == 0) first_used.count_down();
  });
}

TEST_P(MeshOn, RefusesWhatIsNoGrid) {
  run(2, [](ProcessGroup& world) {
    EXPECT_THROW(Mesh(world, {{"dp", 3}}), InvalidArgument);
    EXPECT_THROW(Mesh(world, {{"dp", 2}, {"dp", 1}}), InvalidArgument);
    EXPECT_THROW(Mesh(world, {{"", 2}}), InvalidArgument);
    EXPECT_THROW(Mesh(world, {{"dp", -2}, {"tp", -1}}), InvalidArgument);
    EXPECT_THROW(Mesh(world, {{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}), InvalidArgument);
    Mesh mesh(world, {{"dp", 2}});
    const std::string_view unknown = "tp";
    for (const std::function<void()>& call : std::initializer_list<std::function<void()>>{
             [&] { mesh.size(unknown); }, [&] { mesh.rank(unknown); },
             [&] { mesh.ranks(std::span(&unknown, 1)); }, [&] { mesh.sub(unknown); }})
      try {
        call();
        ADD_FAILURE() << "was accepted";
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("there are: dp"), std::string::npos)
            << error.what();
      }
    contract::expect_usable(mesh.sub("dp"));
  });
}

C10D_ON_EACH_BACKEND(MeshOn);

}}  // namespace c10d::parallel
