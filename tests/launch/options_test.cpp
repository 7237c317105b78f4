// SPDX-License-Identifier: BSD-3-Clause
// The command lines of c10d-run and c10d-info.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/process.h"
#include "tests/temporary_directory.h"

namespace c10d { inline namespace v0 { namespace {

TEST(Options, HelpTeaches) {
  const Ended ended = run_ranks({"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(contains(ended.out, "c10d-run -n 4 ./train")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "share suits the native backend")) << ended.out;
  EXPECT_FALSE(contains(ended.out, "--start-method")) << "it has no effect";
  for (const std::string& line : lines_of(ended.out)) EXPECT_LE(line.size(), 100u) << line;
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string said;
};

const Mistake kMistakes[] = {
    {{"--nproc_per_nod", "2", "true"}, "did you mean --nproc-per-node?"},
    {{"--max-restart=2", "true"}, "did you mean --max-restarts?"},
    {{"-z", "true"}, "unknown option -z"},
    {{}, "no program to run"},
    {{"-n"}, "-n needs a value"},
    {{"-n", "0", "true"}, "-n 0"},
    {{"-n", "2x", "true"}, "-n 2x"},
    {{"-n", "5000", "true"}, "-n 5000: give a number of ranks from 1 to 4096, or auto"},
    {{"-n", "100000000", "true"}, "from 1 to 4096, or auto"},  // before it takes memory for each
    {{"-n", "99999999999", "true"}, "from 1 to 4096, or auto"},
    {{"--nproc-per-node=gpu", "true"}, "cannot count these devices"},
    {{"--nnodes", "2x", "true"}, "--nnodes 2x"},
    {{"--nnodes", "1:4", "true"}, "the number of hosts is fixed"},
    {{"--nnodes", "2", "true"}, "give each host a --node-rank of its own, from 0 to 1"},
    {{"--nnodes=2", "--node-rank=2", "true"}, "from 0 to 1, not 2"},
    {{"--nnodes=2", "--node-rank=1", "true"}, "give --master-addr"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=0", "true"}, "fixed port"},
    {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=a:x", "true"}, "--master-port x"},
    {{"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=a", "--master-addr=a", "true"}, "give one"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--rdzv-conf=x=1", "true"},
     "join_timeout=S and silence=S are known"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--rdzv-conf=silence=0", "true"},
     "whole seconds from 1 on"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--max-restarts=1", "true"},
     "--max-restarts works on one host only"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--via=mpirun", "true"},
     "--via works on one host only"},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--standalone", "true"},
     "--standalone works on one host only"},
    {{"--node-rank=1", "true"}, "there is only 0"},
    {{"--print-commands", "true"}, "needs hosts: -H node1:4,node2:4"},
    {{"--print-commands", "-H", "a:2,,b:2", "true"}, "'' names no host"},
    {{"--print-commands", "-H", "a:0", "true"}, "'a:0' has no number of ranks from 1 to 4096"},
    {{"--print-commands", "-H", "a:5000", "true"}, "'a:5000' has no number of ranks"},
    {{"--print-commands", "-H", "a:", "true"}, "'a:' has no number of ranks"},
    {{"--print-commands", "-H", "a:2,a:4", "true"}, "'a:4' names a host a second time"},
    {{"--print-commands", "-H", "a;b:2", "true"}, "'a;b:2' is no name or address of a host"},
    {{"--print-commands", "-H", "-a:2", "true"}, "is no name or address"},
    {{"--print-commands", "-H", "a", "-n", "x", "true"}, "-n x"},
    {{"--rdzv-backend=etcd", "true"}, "there is no client for it"},
    {{"--rdzv-endpoint=elsewhere:29400", "true"}, "elsewhere is not this host"},
    {{"--numa-binding=cores", "true"}, "--numa-binding"},
    {{"--numa-binding=node", "--bind=numa", "true"}, "give one"},
    {{"--bind", "cores", "true"}, "--bind cores: give none, share, core, l3, numa or socket"},
    {{"--bind", "node", "true"}, "--bind node: give none"},
    {{"--bind", "numa:overload-allowed", "true"}, "--bind numa:overload-allowed: give none"},
    {{"--bind", "core", "--via", "mpirun", "true"},
     "--bind is for ranks that c10d-run starts itself"},
    {{"--bind-to", "core", "true"}, "unknown option --bind-to; write --bind none, share"},
    {{"-bind-to", "core", "true"}, "unknown option -bind-to; write --bind none, share"},
    {{"-wdir", "x", "true"}, "unknown option -wdir; did you mean --wdir?"},
    {{"--timestamp-output", "true"}, "write --timestamps"},
    {{"--start-metod=x", "true"}, "unknown option --start-metod\n"},
    {{"--wdir", "/no/such/place", "true"}, "--wdir /no/such/place: No such file"},
    {{"--wdir", "/dev/null", "true"}, "--wdir /dev/null: not a directory"},
    {{"--timeout", "-1", "true"}, "--timeout"},
    {{"--timeout=nan", "true"}, "--timeout nan"},
    {{"--signals-to-handle", "SIGFOO", "true"}, "there is no signal SIGFOO"},
    {{"--signals-to-handle", "SIGTERM,,", "true"}, "there is no signal ''"},
    {{"--signals-to-handle", "KILL", "true"}, "signal 9 cannot be forwarded"},
    {{"--duplicate-stdout-filters", "a,", "true"}, "an empty filter matches every line"},
    {{"--hostfile", "/no/such/file", "true"}, "--hostfile /no/such/file: No such file"},
    {{"--agent", "ssh %h", "true"}, "--agent needs hosts: -H node1:4"},
    {{"-H", "a:1,b:1", "--agent", "ssh", "true"}, "--agent 'ssh': write %h for the host"},
    {{"-H", "localhost:1,b:1", "true"}, "localhost is the first host, where b is to meet it"},
    {{"-H", "a:1,b:1", "--nnodes=2", "true"}, "--nnodes: the list of hosts says it already"},
    {{"-H", "a:1,b:1", "--max-restarts", "1", "true"}, "--max-restarts works on one host only"},
    {{"--print-commands", "--hostfile", "/no/such/file", "true"}, "No such file or directory"},
    {{"--print-commands", "--hostfile", "/dev/null", "true"}, "/dev/null names no host"},
    {{"--print-commands", "--hostfile", "/dev/null", "-H", "a", "true"}, "give one"},
    {{"--max-restarts=-1", "true"}, "--max-restarts"},
    {{"-r", "4", "--log-dir", "x", "true"}, "--redirects 4"},
    {{"-n2", "--ranks-filter=2", "true"}, "ranks are 0 to 1"},
    {{"-x", "=value", "true"}, "write NAME=VALUE, or NAME"},
    {{"--master-port=70000", "true"}, "--master-port 70000"},
    {{"--print", "ssh", "true"}, "--print"},
    {{"c10d-no-such-program"}, "there is no such program on PATH"},
    {{"./no/such/program"}, "No such file or directory"},
    {{"/dev/null"}, "chmod +x it"},
    {{"/dev"}, "it is a directory"},
    {{"--grace=nan", "true"}, "--grace nan"},
    {{"--rdzv-id=", "-n", "2", "true"}, "--rdzv-id= has no value"},
    {{"-n2", "-r", "2:3", "--log-dir", "x", "true"}, "--redirects 2:3: ranks are 0 to 1"},
};

TEST(Options, MistakesAreNamed) {
  for (const Mistake& mistake : kMistakes) {
    const Ended ended = run_ranks(mistake.arguments);
    EXPECT_EQ(ended.code, 2) << mistake.said << ": " << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_TRUE(contains(ended.err, mistake.said)) << mistake.said << ": " << ended.err;
  }
}

TEST(Options, TorchrunsSpellingsAreTaken) {
  for (const std::vector<std::string>& spelling :
       {std::vector<std::string>{"--nproc-per-node", "2"},
        {"--nproc_per_node=2"},
        {"-n2"},
        {"-np", "2"},
        {"--np", "2"},
        {"-c", "2"},
        {"-n", "2"}}) {
    std::vector<std::string> arguments = {
        "--nnodes=1", "--node_rank",     "0",           "--standalone", "--rdzv_backend",
        "c10d",       "--rdzv-endpoint", "localhost:0", "--no_python",  "--monitor-interval",
        "5"};
    arguments.insert(arguments.end(), spelling.begin(), spelling.end());
    arguments.insert(arguments.end(), {C10D_PROBE, "text", "x\n", ""});
    const Ended ended = run_ranks(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    EXPECT_EQ(lines_of(ended.out).size(), 2u) << spelling[0];
  }
}

TEST(Options, WhatDoesNothingIsSaid) {
  const Ended ended = run_ranks({"--start-method=fork", C10D_PROBE, "text", "", ""});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(contains(ended.err, "warning: --start-method has no effect")) << ended.err;
}

TEST(Options, ComeFromTheEnvironmentUnlessTyped) {
  const std::map<std::string, std::string> environment = {{"PET_NPROC_PER_NODE", "3"}};
  EXPECT_EQ(lines_of(run_ranks({C10D_PROBE, "text", "x\n", ""}, environment).out).size(), 3u);
  EXPECT_EQ(lines_of(run_ranks({"-n", "1", C10D_PROBE, "text", "x\n", ""}, environment).out).size(),
            1u);
  EXPECT_EQ(run_ranks({"true"}, {{"PET_NNODES", "4"}}).code, 2);
}

TEST(Options, AnUnknownVariableOfOursIsAWarning) {
  const Ended ended = run_ranks({C10D_PROBE, "text", "", ""}, {{"C10D_BACKENDS", "native"}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(contains(ended.err, "C10D_BACKENDS is set but unknown; did you mean C10D_BACKEND?"))
      << ended.err;
}

TEST(Options, WhatFollowsTheProgramIsItsOwn) {
  EXPECT_EQ(
      run_ranks({"--no-prefix", C10D_PROBE, "arguments", "-n", "5", "--help", "a b", "--"}).out,
      "-n\n5\n--help\na b\n--\n");
  EXPECT_EQ(run_ranks({"--no-prefix", "--", C10D_PROBE, "arguments", "x"}).out, "x\n");
}

TEST(Options, APythonScriptRunsUnbuffered) {
  const auto script = std::filesystem::path(::testing::TempDir()) /
                      ("c10d_run_script_" + std::to_string(getpid()) + ".py");
  std::ofstream(script) << "import os, sys\n"
                           "print(os.environ['RANK'], sys.argv[1], sys.stdout.write_through)\n";
  const Ended ended = run_ranks({"-n", "1", script, "x"});
  std::filesystem::remove(script);
  EXPECT_EQ(ended.out, "[0] 0 x True\n") << ended.err;
  EXPECT_EQ(run_ranks({"-m", "this"}).code, 0);
}

// Which Open MPI refuses to root.
std::string mpirun() { return geteuid() == 0 ? "mpirun --allow-run-as-root" : "mpirun"; }

TEST(Options, OtherLaunchersLinesArePrinted) {
  const auto line = [](const std::vector<std::string>& arguments) {
    return run_ranks(arguments).out;
  };
  EXPECT_EQ(line({"-n", "1", "--print", "mpirun", "./p", "a b"}),
            mpirun() + " -n 1 --bind-to none --tag-output ./p 'a b'\n");
  EXPECT_EQ(line({"-n", "3", "-x", "K=v,w", "--print=srun", "./p"}),
            "env K=v,w srun --nodes=1 --ntasks=3 --kill-on-bad-exit=1 --export=ALL --label ./p\n");
  EXPECT_EQ(line({"-n", "2", "--max-restarts", "1", "--print", "torchrun", "./p"}),
            "torchrun --standalone --nproc_per_node=2 --max_restarts=1 --no_python ./p\n");
  EXPECT_EQ(line({"-n", "2", "--print", "torchrun", "t.py", "--lr=1"}),
            "torchrun --standalone --nproc_per_node=2 t.py --lr=1\n");
  EXPECT_EQ(
      line({"-n", "1", "-x", "K=v", "--timeout", "5", "--wdir", "a b", "--print=srun", "./p"}),
      "env -C 'a b' K=v timeout 5 srun --nodes=1 --ntasks=1 --kill-on-bad-exit=1 "
      "--export=ALL --label ./p\n");
}

TEST(Options, TheLineOfMpirunNamesHostsAndNetwork) {
  const std::vector<std::string> typed = {"-H", "node1:4,node2:2", "--print", "mpirun", "./p"};
  const std::string token = "-x C10D_TOKEN_FILE=/etc/token ";
  const Ended plain = run_ranks(typed, {{"C10D_TOKEN_FILE", "/etc/token"}});
  EXPECT_EQ(plain.out, mpirun() + " -n 6 -H node1:4,node2:2 --bind-to none " + token +
                           "-x MASTER_ADDR=node1 -x MASTER_PORT=29500 --tag-output ./p\n");
  const Ended chosen =
      run_ranks(typed, {{"C10D_TOKEN_FILE", "/etc/token"}, {"C10D_NET_INTERFACE", "lo"}});
  EXPECT_EQ(chosen.out,
            mpirun() +
                " -n 6 -H node1:4,node2:2 --bind-to none --mca oob_tcp_if_include 127.0.0.0/8 "
                "--mca btl_tcp_if_include 127.0.0.0/8 -x C10D_NET_INTERFACE=lo " +
                token + "-x MASTER_ADDR=node1 -x MASTER_PORT=29500 --tag-output ./p\n");
  EXPECT_EQ(run_ranks({"-H", "a:1,b:1", "--print", "srun", "./p"}).code, 2);
  EXPECT_EQ(run_ranks({"-n", "auto", "-H", "a:1,b", "--print", "mpirun", "./p"}).code, 2);
}

TEST(Options, CommandsOfSeveralHostsArePrinted) {
  const auto commands = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "--print-commands");
    const Ended ended = run_ranks(arguments, {{"C10D_TOKEN_FILE", "/etc/my token"}});
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::vector<std::string> lines = lines_of(ended.out);
    lines.erase(lines.begin(), std::find(lines.begin(), lines.end(), "# on node1"));
    return lines;
  };
  const std::string start = std::string("C10D_TOKEN_FILE='/etc/my token' ") + C10D_RUN;
  const std::vector<std::string> expected = {
      "# on node1",
      start +
          " --nnodes=2 --node-rank=0 --master-addr=node1 --master-port=29500 "
          "--nproc-per-node=4 ./p 'a b' -n 1",
      "# on fd00::2",
      start +
          " --nnodes=2 --node-rank=1 --master-addr=node1 --master-port=29500 "
          "--nproc-per-node=3 ./p 'a b' -n 1"};
  EXPECT_EQ(commands({"-n", "3", "-H", "node1:4,[fd00::2]", "./p", "a b", "-n", "1"}), expected);
  EXPECT_EQ(
      commands({"--hosts=node1", "--master_addr", "10.0.0.1", "--master-port=5", "-x", "A=b c",
                "--no_prefix", "--nproc_per_node=auto", "./p"}),
      (std::vector<std::string>{
          "# on node1", start + " --nnodes=1 --node-rank=0 --master-addr=10.0.0.1 --master-port=5 "
                                "--nproc-per-node=auto -x 'A=b c' --no-prefix ./p"}));
}

TEST(Options, HostsComeFromAFile) {
  const TemporaryDirectory folder;
  const auto commands = [&](const std::string& text) {
    std::ofstream(folder / "hosts") << text;
    return run_ranks({"--print-commands", "-n", "3", "--hostfile", folder / "hosts", "./p"});
  };
  const Ended ended =
      commands("# ours\nnode1:4\n\n  node2 slots=2  # slow\n[fd00::2]\nfd00::3 slots=1");
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::vector<std::string> said;
  for (const std::string& line : lines_of(ended.out))
    if (line.starts_with("# on ") || contains(line, "c10d-run"))
      said.push_back(line.substr(line.starts_with("#") ? 0 : line.find("--nproc")));
  EXPECT_EQ(said, (std::vector<std::string>{"# on node1", "--nproc-per-node=4 ./p", "# on node2",
                                            "--nproc-per-node=2 ./p", "# on fd00::2",
                                            "--nproc-per-node=3 ./p", "# on fd00::3",
                                            "--nproc-per-node=1 ./p"}));
  const std::pair<const char*, const char*> mistakes[] = {
      {"a\n\nb slots=x", "line 3: 'b slots=x' has no number of ranks from 1 to 4096"},
      {"a slots=", "line 1: 'a slots=' has no number of ranks"},
      {"a\na:2", "line 2: 'a:2' names a host a second time"},
      {"a 4", "line 1: 'a 4' has '4' behind its name"},
      {"a slots=4 max_slots=8", "has 'max_slots=8' behind its ranks"},
      {"a;b", "line 1: 'a;b' is no name or address of a host"},
  };
  for (const auto& [text, message] : mistakes) {
    const Ended refused = commands(text);
    EXPECT_EQ(refused.code, 2) << text;
    EXPECT_TRUE(contains(refused.err, folder / "hosts")) << refused.err;
    EXPECT_TRUE(contains(refused.err, message)) << refused.err;
  }
}

TEST(Options, MpirunStartsTheRanks) {
  if (run({.command = {"mpirun", "--version"}}).code != 0) GTEST_SKIP() << "there is no mpirun";
  const Ended ended =
      run_ranks({"-n", "3", "--via", "mpirun", C10D_PROBE, "variables", "MASTER_ADDR"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "MASTER_ADDR=127.0.0.1\nMASTER_ADDR=127.0.0.1\nMASTER_ADDR=127.0.0.1\n");
  const auto backend = [](std::vector<std::string> options) {
    options.insert(options.end(), {"--via", "mpirun", C10D_PROBE, "variables", "C10D_BACKEND"});
    return run_ranks(options).out;
  };
  EXPECT_EQ(backend({}), "C10D_BACKEND=mpi\n");
  EXPECT_EQ(backend({"-x", "C10D_BACKEND=gloo"}), "C10D_BACKEND=gloo\n");
}

TEST(Info, FitsOnOneScreenUnlessAskedForMore) {
  const Ended ended = run({.command = {C10D_INFO}, .environment = {{"C10D_TIMEOUT", "7"}}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_LE(lines_of(ended.out).size(), 40u) << ended.out;
  EXPECT_TRUE(contains(ended.out, "\nnative     ")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "C10D_TIMEOUT=7")) << ended.out;
  const Ended variables = run({.command = {C10D_INFO, "--env"}});
  EXPECT_TRUE(contains(variables.out, "C10D_NATIVE_PLAN")) << variables.out;
}

TEST(Info, IsReadableInAHundredColumns) {
  const Ended ended = run({.command = {C10D_INFO, "--all"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  for (const char* section : {"version", "host", "launch", "backends", "capabilities", "limits"})
    EXPECT_TRUE(contains(ended.out, std::string("\n") + section + "\n") ||
                ended.out.starts_with(section))
        << section;
  for (const std::string& line : lines_of(ended.out)) {
    const bool is_one_word =  // the path of a module, which has any length
        line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
    if (!is_one_word) {
      EXPECT_LE(line.size(), 100u) << line;
    }
  }
}

TEST(Info, SaysTheSameToPrograms) {
  const Ended ended = run(
      {.command = {C10D_INFO, "--json"},
       .environment = {
           {"C10D_TIMEOUT", "7"}, {"C10D_TOKEN_FILE", "hush"}, {"C10D_JOB_ID", "no UTF-8: \xff"}}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(contains(ended.out, "hush"));
  const auto facts = nlohmann::json::parse(ended.out);
  EXPECT_EQ(facts["backends"][0]["name"], "native");
  EXPECT_EQ(facts["capabilities"]["native"]["cpu"]["all_reduce"]["f32"]["sum"]["ok"], true);
  EXPECT_EQ(facts["capabilities"]["native"]["cpu"]["all_reduce"]["i32"]["avg"]["ok"], false);
  EXPECT_EQ(facts["launch"]["launcher"], "none");
  for (const char* ranks : {"2_ranks", "4_ranks", "8_ranks"}) {
    const std::string takes = facts["native"][ranks];
    const std::size_t number = takes.rfind("; ") + 2;
    EXPECT_TRUE(takes.ends_with(" KiB per rank")) << takes;
    EXPECT_LE(std::stoul(takes.substr(number)), 8u << 10) << takes;
  }
  bool found = false;
  for (const auto& variable : facts["environment"]) {
    if (variable["name"] != "C10D_TIMEOUT") continue;
    found = true;
    EXPECT_EQ(variable["value"], "7");
    EXPECT_EQ(variable["default"], "300");
    EXPECT_EQ(variable["source"], "environment");
  }
  EXPECT_TRUE(found);
}

TEST(Info, SaysWhatBringsTheDriver) {
  const auto why = [](const std::map<std::string, std::string>& environment) -> std::string {
    const Ended ended = run({.command = {C10D_INFO, "--json"}, .environment = environment});
    return nlohmann::json::parse(ended.out)["gpus"]["why_none"];
  };
  const std::string other = why({{"C10D_CUDA_LIBRARY", "/no/driver"}});
  EXPECT_TRUE(contains(other, "no CUDA driver: /no/driver")) << other;
  EXPECT_FALSE(contains(other, "libcuda1")) << other;
  const std::string here = why({{"C10D_CUDA_LIBRARY", "libcuda.so.1"}});
  EXPECT_EQ(contains(here, "no CUDA driver"), contains(here, "packages nvidia-driver and libcuda1"))
      << here;
}

TEST(Info, KnowsWhoStartedIt) {
  const Ended ended = run_ranks({"-n", "2", C10D_INFO, "launch"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(contains(ended.out, "[1]   launcher                    c10d\n")) << ended.out;
  EXPECT_TRUE(contains(ended.out, "C10D_RANK=1 C10D_WORLD_SIZE=2")) << ended.out;
}

TEST(Info, MistakesAreUsageErrors) {
  EXPECT_EQ(run({.command = {C10D_INFO, "nonsense"}}).code, 2);
  EXPECT_EQ(run({.command = {C10D_INFO, "--nonsense"}}).code, 2);
  EXPECT_EQ(run({.command = {C10D_INFO, "--help"}}).code, 0);
  const Ended full = run({.command = {"sh", "-c", C10D_INFO " version >/dev/full"}});
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_EQ(full.err, "c10d-info: stdout: cannot be written\n");
}

}}}  // namespace c10d::v0
