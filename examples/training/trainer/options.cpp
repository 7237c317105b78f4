// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "examples/training/nn/model.h"
#include "examples/training/nn/optimizer.h"

namespace nn {
namespace {

constexpr const char* kFooter = R"(
Bits: in the mode `reproducible` (the default) the batch is cut into --shards parts whatever the
number of ranks, and gradients add up along one tree. Runs with the same model, data, optimizer,
seed, shards and global batch print the same `weights` line: alone, as threads, under DDP at any
number of ranks, sharded, as a pipeline (whose --chunks are its shards), on any backend, and after
a resume. --batch-size counts per rank, so give --global-batch-size to compare numbers of ranks.
The mode `fast` makes one shard per rank.)";

void add_common(CLI::App& app, Options& options, std::string& mode) {
  app.add_option("--model", options.model, "What to train")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  app.add_option(
         "--data", options.data,
         "digits (1,797 of 8x8, shipped), text (this documentation), random, a file of text, "
         "or a folder with MNIST's files")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the data")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples per step and rank")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--global-batch-size", options.global_batch_size,
                 "Samples per step over all ranks, instead of --batch-size")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--lr", options.rate, "Learning rate")
      ->check([](const std::string& text) {
        const float rate = std::strtof(text.c_str(), nullptr);
        return rate >= 0 && std::isfinite(rate) ? "" : text + " is no learning rate";
      })
      ->capture_default_str();
  app.add_option("--optimizer", options.optimizer, "sgd (momentum 0.9) or adamw")
      ->check(CLI::IsMember(Optimizer::names()))
      ->capture_default_str();
  app.add_option("--schedule", options.schedule, "Of the learning rate: constant, or cosine to 0")
      ->check(CLI::IsMember({"constant", "cosine"}))
      ->capture_default_str();
  app.add_option("--shift", options.shift,
                 "Move every training image by up to so many pixels, at random")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of initial weights, order of samples and shifts")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? text + " is no seed: the least is 0" : "";
      })
      ->capture_default_str();
  app.add_option("--mode", mode, "reproducible or fast, see below")
      ->check(CLI::IsMember({"reproducible", "fast"}))
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Directory: goes on from its newest checkpoint, and saves there");
  app.add_option("--save-every", options.save_every, "Steps between checkpoints (else: epochs)")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--steps", options.steps, "Stop after so many steps")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--trace", options.trace,
                 "File for a Chrome trace (ui.perfetto.dev) of all ranks");
  app.add_flag("--plan", options.plan, "Print memory per strategy before the start");
}

void add_extra(CLI::App& app, Options& options, const std::string& extra) {
  if (extra == "backend")
    app.add_option("--backend", options.backend,
                   "native, gloo or mpi; else C10D_BACKEND, else native");
  else if (extra == "shards")
    app.add_option("--shards", options.shards, "Parts of a batch in the mode reproducible")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
  else if (extra == "ranks")
    app.add_option("--ranks", options.ranks, "How many to train with")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
  else if (extra == "print-commands")
    app.add_option("--print-commands", options.print_commands,
                   "node1:4,node2:4: print what to type on each of these hosts, with so many ranks "
                   "on each, and exit");
  else if (extra == "zero")
    app.add_option("--zero", options.zero,
                   "What is sharded: 1 optimizer state, 2 gradients too, 3 parameters too")
        ->check(CLI::Range(1, 3))
        ->capture_default_str();
  else if (extra == "replicas")
    app.add_option("--replicas", options.replicas,
                   "Hybrid sharding: so many groups of ranks hold a whole set of parts each")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
  else if (extra == "pipeline") {
    app.get_option("--mode")->check([](const std::string& text) {
      return text != "fast" ? "" : "a pipeline has no mode fast: its shards are its --chunks";
    });
    app.add_option("--chunks", options.shards, "Micro-batches of a step, which are its shards")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    app.add_option("--pipeline-schedule", options.pipeline,
                   "gpipe, 1f1b, interleaved, zb-h1 or zb-v")
        ->capture_default_str();
    app.add_option("--stages-per-rank", options.stages_per_rank,
                   "Else 2 for interleaved and zb-v, 1 for the others")
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
