// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "c10d/parallel/checkpoint_info.h"
#include "src/launch/line_output.h"
#include "tools/manual/manual.h"

namespace c10d { inline namespace v0 { namespace {

constexpr int kUsage = 2;

using parallel::CheckpointInfo;

nlohmann::ordered_json to_json(const CheckpointInfo& info) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const parallel::ParamSpec& spec : info.tensors)
    tensors.push_back(
        {{"name", spec.name}, {"dtype", to_string(spec.dtype)}, {"shape", spec.shape}});
  return {{"path", info.path},
          {"step", info.step},
          {"epoch", info.epoch},
          {"cursor", info.cursor},
          {"world_size", info.world_size},
          {"bytes", info.bytes},
          {"strings", info.strings},
          {"integers", info.integers},
          {"files", info.files},
          {"tensors", std::move(tensors)}};
}

// Names come from a file that somebody else may have written.
void print_text(const CheckpointInfo& info) {
  fmt::print("{}\n  step {}, epoch {}, {} samples of it done\n  {} bytes in {} files of {} ranks\n",
             visible(info.path), info.step, info.epoch, info.cursor, info.bytes, info.files.size(),
             info.world_size);
  for (const auto& [name, value] : info.strings)
    fmt::print("  {} = {}\n", visible(name), visible(value));
  for (const auto& [name, value] : info.integers) fmt::print("  {} = {}\n", visible(name), value);
  fmt::print("{} tensors\n", info.tensors.size());
  for (const parallel::ParamSpec& spec : info.tensors)
    fmt::print("  {:<5} {:<20} {}\n", to_string(spec.dtype),
               fmt::format("[{}]", fmt::join(spec.shape, ", ")), visible(spec.name));
}

int checkpoint(int argc, char** argv) {
  CLI::App app("Inspects, verifies and consolidates checkpoints.", "c10d-checkpoint");
  app.footer(
      "Examples:\n"
      "  c10d-checkpoint inspect run                        step, epoch and tensors of the latest\n"
      "  c10d-checkpoint inspect run/000003-step-300        of that one\n"
      "  c10d-checkpoint inspect --verify run               and read and check every byte\n"
      "  c10d-checkpoint inspect --json run | jq .step      the same for programs\n"
      "  c10d-checkpoint consolidate run model.safetensors  all tensors, whole, in one file\n"
      "\nA checkpoint is a directory with manifest.json and one file per rank; `latest`, beside "
      "it,\n"
      "names the newest that is complete. Exit status: 0; 1 when it is torn, changed or missing;\n"
      "2 for a mistake in this command line. More: docs/checkpoint.md.");
  app.require_subcommand(1);
  std::string path, output;
  bool json = false, verify = false;
  const auto add_path = [&](CLI::App* command) {
    command->add_option("PATH", path, "a checkpoint, or the directory that holds checkpoints")
        ->required()
        ->type_name("");
  };
  CLI::App* const inspect = app.add_subcommand("inspect", "print what a checkpoint holds");
  add_path(inspect);
  inspect->add_flag("--json", json, "as one JSON object");
  inspect->add_flag("--verify", verify, "read every byte and compare the checksums");
  CLI::App* const consolidate =
      app.add_subcommand("consolidate", "write all tensors to one new safetensors file");
  add_path(consolidate);
  consolidate->add_option("OUTPUT", output, "must not exist")->required()->type_name("");
  if (const auto manual = manual_of(app, argc, argv)) {
    fmt::print("{}", *manual);
    return 0;
  }
  if (argc > 1 && argv[1][0] != '-' &&
      std::ranges::none_of(app.get_subcommands({}), [&](const CLI::App* command) {
        return command->get_name() == argv[1];
      })) {
    fmt::print(
        stderr,
        "c10d-checkpoint: unknown command {}; there are inspect (--verify checks every byte) "
        "and consolidate: c10d-checkpoint --help\n",
        visible(argv[1]));
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (consolidate->parsed()) {
    parallel::consolidate_checkpoint(path, output);
    return 0;
  }
  const CheckpointInfo info = parallel::inspect_checkpoint(path);
  if (verify) parallel::verify_checkpoint(info.path);
  if (json)
    fmt::print("{}\n", to_json(info).dump(2));
  else
    print_text(info);
  if (verify && !json) fmt::print("every byte matches its checksum\n");
  return 0;
}

}}}  // namespace c10d::v0

int main(int argc, char** argv) try {
  return c10d::checkpoint(argc, argv);
} catch (const std::exception& error) {
  fmt::print(stderr, "c10d-checkpoint: {}\n", c10d::visible(error.what()));
  return 1;
}
