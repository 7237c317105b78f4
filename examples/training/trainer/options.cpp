// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "examples/training/nn/model.h"
#include "examples/training/nn/optimizer.h"

namespace nn {
namespace {

constexpr const char* kFooter = R"(
Equal bits: in the mode `reproducible` (the default) a batch is split into --shards shards, whatever
the number of ranks, and gradients are summed along one tree. Runs with the same model, data,
optimizer, seed, shards and global batch print the same `weights` line: in one process, as threads,
under DDP with any number of ranks, sharded, as a pipeline (its --chunks are its shards), on any
backend, and after a resume. As in torchrun scripts, --batch-size is per rank: give
--global-batch-size to compare numbers of ranks. In the mode `fast` there is one shard per rank.)";

// An option of which --help shows the default.
template <class T, class Check>
void add(CLI::App& app, const char* name, T& value, const Check& check, const char* text) {
  app.add_option(name, value, text)->check(check)->capture_default_str();
}

void add_common(CLI::App& app, Options& options, std::string& mode) {
  add(app, "--model", options.model, CLI::IsMember(model_names()), "The model to train");
  app.add_option("--data", options.data,
                 "digits (1,797 images of 8x8, shipped), text (the documentation of this project), "
                 "random (noise), a file of text, or a folder with MNIST's files")
      ->capture_default_str();
  add(app, "--epochs", options.epochs, CLI::Range(1, 1'000'000), "Passes over the data");
  add(app, "--batch-size", options.batch_size, CLI::Range(1, 1'000'000),
      "Samples per step and rank");
  app.add_option("--global-batch-size", options.global_batch_size,
                 "Samples per step over all ranks, instead of --batch-size")
      ->check(CLI::Range(1, 1'000'000));
  const auto is_rate = [](const std::string& text) {
    const float rate = std::strtof(text.c_str(), nullptr);
    return rate >= 0 && std::isfinite(rate) ? "" : text + " is not a learning rate";
  };
  add(app, "--lr", options.rate, is_rate, "Learning rate");
  add(app, "--optimizer", options.optimizer, CLI::IsMember(Optimizer::names()),
      "sgd (momentum 0.9) or adamw");
  add(app, "--schedule", options.schedule, CLI::IsMember({"constant", "cosine"}),
      "Learning rate schedule: constant, or cosine (falls to 0)");
  add(app, "--shift", options.shift, CLI::Range(0, 1024),
      "Shift every training image at random by up to this many pixels");
  const auto is_seed = [](const std::string& text) {
    return text.starts_with('-') ? text + " is not a seed: the least is 0" : "";
  };
  add(app, "--seed", options.seed, is_seed,
      "Seed of the initial weights, the order of the samples and the shifts");
  add(app, "--mode", mode, CLI::IsMember({"reproducible", "fast"}),
      "reproducible or fast (see below)");
  app.add_option("--checkpoint", options.checkpoint,
                 "Folder of checkpoints: the run resumes from the newest one, and saves there");
  app.add_option("--save-every", options.save_every,
                 "Steps between checkpoints (default: one checkpoint per epoch)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--steps", options.steps, "Stop after this many steps")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--trace", options.trace,
                 "Write a Chrome trace (ui.perfetto.dev) of all ranks to this file");
  app.add_flag("--plan", options.plan, "Print the memory of each strategy before training");
}

void add_extra(CLI::App& app, Options& options, const std::string& extra) {
  if (extra == "backend")
    app.add_option("--backend", options.backend,
                   "native, gloo or mpi (default: C10D_BACKEND, else native)");
  else if (extra == "shards")
    add(app, "--shards", options.shards, CLI::Range(1, 65536),
        "Shards of a batch in the mode reproducible");
  else if (extra == "ranks")
    add(app, "--ranks", options.ranks, CLI::Range(1, 256), "Number of ranks to train with");
  else if (extra == "print-commands")
    app.add_option("--print-commands", options.print_commands,
                   "Hosts with their numbers of ranks, such as node1:4,node2:4: print the command "
                   "to type on each host, and exit");
  else if (extra == "zero")
    add(app, "--zero", options.zero, CLI::Range(1, 3),
        "What is sharded: 1 optimizer state, 2 gradients too, 3 parameters too");
  else if (extra == "replicas")
    add(app, "--replicas", options.replicas, CLI::Range(1, 65536),
        "Hybrid sharding: number of replicas, each sharded over a group of ranks of its own");
  else if (extra == "pipeline") {
    app.get_option("--mode")->check([](const std::string& text) {
      return text != "fast" ? "" : "a pipeline has no mode fast: its shards are its --chunks";
    });
    add(app, "--chunks", options.shards, CLI::Range(1, 65536),
        "Micro-batches per step, which are its shards");
    app.add_option("--pipeline-schedule", options.pipeline,
                   "gpipe, 1f1b, interleaved, zb-h1 or zb-v")
        ->capture_default_str();
    app.add_option("--stages-per-rank", options.stages_per_rank,
                   "Stages per rank (default: 2 for interleaved and zb-v, 1 for the others)")
        ->check(CLI::Range(1, 64));
  }
}

}  // namespace

int run_program(const Program& program, int argc, char** argv,
                const std::function<void(const Options&)>& body) {
  Options options;
  std::string mode = "reproducible";
  CLI::App app(program.about, program.name);
  app.footer(kFooter);
  add_common(app, options, mode);
  for (const std::string& extra : program.extras) add_extra(app, options, extra);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  options.reproducible = mode == "reproducible";
  options.command.assign(argv, argv + argc);
  try {
    body(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 1;
  }
}

}  // namespace nn
