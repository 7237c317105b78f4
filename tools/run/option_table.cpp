// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run/option_table.h"

#include <algorithm>
#include <iterator>

namespace c10d { inline namespace v0 {

const char* const kUsageLine = "c10d-run [options] PROGRAM [arguments of the program]";
const char* const kDescription =
    "Starts ranks of a program on this host, waits for them, and leaves none behind.\n"
    "Starts them on other hosts too, with -H. Or run it on each host.";
const char* const kFooter = R"(Examples:
  c10d-run -n 4 ./train --epochs 3        four ranks; each line of output is "[rank] line"
  c10d-run -n auto train.py               one rank per CPU; a .py file runs under python3 -u
  c10d-run --nproc_per_node=2 ./train     torchrun's spelling, with - or _, or PET_NPROC_PER_NODE=2
  c10d-run -n 4 --log-dir logs -r 3 ./train   output in logs/RANK/stdout.log and stderr.log
  c10d-run -n 4 --max-restarts 2 ./train  all ranks again after a failure, twice at most
  c10d-run -n 4 --timeout 600 ./train     ten minutes for everything, restarts included
  c10d-run -n 4 --bind share ./train      each rank keeps to its part of the CPUs
  c10d-run -n 4 --print mpirun ./train    the line to type for another launcher
  c10d-run -n 4 --via mpirun ./train      mpirun starts the ranks (C10D_BACKEND: mpi)
  c10d-run -H node1:4,node2:4 ./train     on two hosts, which it reaches by ssh
  c10d-run -H node1:4,node2:4 --print-commands ./train   what to type on each host instead
  c10d-run doctor -H node1:4,node2:4      check whether a job would start there

Each rank finds in its environment C10D_RANK, C10D_WORLD_SIZE, C10D_STORE, ..., and what torchrun
sets (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...). When one fails, the others get
SIGTERM, then SIGKILL, unless --max-failures lets them continue; the first failure is reported.

Binding: bind ranks to time a loop, and where other programs use the host: unbound ranks may share
a CPU for a while. share suits the native backend if every rank gets two CPUs or more, because a
thread of it makes async operations progress beside the program. With one CPU per rank, core suits
programs of one thread that only make blocking calls; with async operations leave it at none. l3,
numa and socket keep a rank near its memory and let its threads choose the CPU.

Exit status: 0; the code of the first rank that failed, or 128 + signal; 124 when --timeout ended
the job; 2 for a mistake in this command line or a program that cannot be started; 1 when c10d-run
itself fails.
c10d-info lists every environment variable. More: docs/launching.md.)";

namespace {

constexpr const char* kOwn = "Options";
constexpr const char* kTorchrun = "As in torchrun";
constexpr const char* kHidden = "";  // of no use to a user: without effect, or of -H to a host

std::vector<OptionRow> own_rows(RawOptions& raw) {
  return {
      {"-n,-c,--np,--nproc-per-node", "N", kOwn, "ranks on this host: a number, auto or cpu (1)",
       &raw.ranks},
      {"-x,--env", "NAME[=VALUE]", kOwn,
       "variable for the ranks, repeatable; no VALUE: as it is here", &raw.environment},
      {"--wdir", "DIR", kOwn, "directory in which the ranks start (this one)", &raw.directory},
      {"--bind", "none|share|core|l3|numa|socket", kOwn, "CPUs of each rank (none); see Binding",
       &raw.bind},
      {"--timeout", "S", kOwn, "end the job after S seconds, restarts included, with code 124",
       &raw.timeout, 0, 31'536'000},
      {"--grace,--shutdown-timeout", "S", kOwn,
       "seconds from SIGTERM to SIGKILL once a rank has failed (5)", &raw.grace, 0, 86'400},
      {"--max-restarts", "K", kOwn, "how many times to restart all ranks (0)", &raw.max_restarts, 0,
       1'000'000},
      {"--max-failures", "K", kOwn, "ranks that may fail while the others continue (0)",
       &raw.max_failures, 0, 1'000'000},
      {"--no-prefix", "", kOwn, "lines as they are, without \"[rank] \"", &raw.no_prefix},
      {"--timestamps", "", kOwn, "begin each line with the local time", &raw.timestamps},
      {"--local-ranks-filter,--ranks-filter", "0,2,..", kOwn, "show the output of these only",
       &raw.shown},
      {"--log-dir", "DIR", kOwn, "folder for output in files (with -r or -t: one under TMPDIR)",
       &raw.log_dir},
      {"-r,--redirects", "K|RANK:K,..", kOwn,
       "to files instead of here: 0 none, 1 stdout, 2 stderr, 3 both", &raw.redirects},
      {"-t,--tee", "K|RANK:K,..", kOwn, "to files and here too", &raw.tee},
      {"--print",
       "LAUNCHER",
       kOwn,
       "print the line for srun, mpirun or torchrun and exit",
       &raw.print_for,
       0,
       0,
       {"srun", "mpirun", "torchrun"}},
      {"--via", "mpirun", kOwn, "let mpirun start the ranks", &raw.via, 0, 0, {"mpirun"}},
      {"-H,--hosts", "HOST:N,..", kOwn, "start all of these hosts, with so many ranks on each",
       &raw.host_list},
      {"--hostfile", "FILE", kOwn, "the same, a line each: HOST, HOST:N or HOST slots=N",
       &raw.host_file},
      {"--agent", "COMMAND", kOwn, "what runs a command on a host: ssh %h %c, for example",
       &raw.agent},
      {"--print-commands", "", kOwn, "print what to type on each of these hosts and exit",
       &raw.print_commands},
      {"--token-on-stdin", "", kOwn, "read the secret from stdin's first line; end when it ends",
       &raw.token_on_stdin},
      {"-v,--verbose", "", kOwn, "say what is started and how", &raw.verbose},
      {"--version", "", kOwn, "print the version and exit", &raw.version},
  };
}

std::vector<OptionRow> torchruns_rows(RawOptions& raw) {
  HostsText& hosts = raw.hosts;
  return {
      {"--nnodes", "N", kTorchrun, "hosts, each of which runs c10d-run (1)", &hosts.nnodes},
      {"--node-rank", "K", kTorchrun, "of this host, from 0", &hosts.node_rank},
      {"--standalone", "", kTorchrun, "one host", &raw.standalone},
      {"--master-addr", "HOST", kTorchrun, "where hosts meet, on host 0; of one host: MASTER_ADDR",
       &hosts.master_addr},
      {"--master-port", "PORT", kTorchrun, "and its port (29500); of one host: MASTER_PORT",
       &hosts.master_port},
      {"--local-addr", "HOST", kTorchrun,
       "address of this host for the others (the one towards host 0)", &hosts.local_addr},
      {"--rdzv-backend", "NAME", kTorchrun, "static or c10d", &raw.rdzv_backend},
      {"--rdzv-endpoint", "HOST:PORT", kTorchrun,
       "as --master-addr and -port; of one host: any port", &hosts.rdzv_endpoint},
      {"--rdzv-id", "ID", kTorchrun, "name of the job, TORCHELASTIC_RUN_ID", &hosts.rdzv_id},
      {"--rdzv-conf", "K=V,..", kTorchrun, "join_timeout=S (300), silence=S (15) of other hosts",
       &hosts.rdzv_conf},
      {"--role", "NAME", kTorchrun, "ROLE_NAME of the ranks (default)", &raw.role},
      {"-m,--module", "", kTorchrun, "PROGRAM is a Python module", &raw.module},
      {"--no-python", "", kTorchrun, "PROGRAM is no Python script, whatever its name",
       &raw.no_python},
      {"--run-path", "", kTorchrun, "PROGRAM is a Python script, whatever its name", &raw.run_path},
      {"--numa-binding",
       "KIND",
       kTorchrun,
       "--bind in torchrun's words: node, socket, exclusive, core-complex",
       &raw.numa_binding,
       0,
       0,
       {"node", "socket", "exclusive", "core-complex"}},
      {"--virtual-local-rank", "", kTorchrun,
       "LOCAL_RANK is 0, and CUDA_VISIBLE_DEVICES names one device", &raw.virtual_local_rank},
      {"--signals-to-handle", "SIG,..", kTorchrun,
       "forwarded, and end the job (SIGTERM,SIGINT,SIGHUP,SIGQUIT)", &raw.signals},
      {"--duplicate-stdout-filters", "TEXT,..", kTorchrun,
       "lines with one of these texts also to LOGDIR/filtered_stdout.log", &raw.duplicate_stdout},
      {"--duplicate-stderr-filters", "TEXT,..", kTorchrun,
       "lines with one of these texts also to LOGDIR/filtered_stderr.log", &raw.duplicate_stderr},
      {"--env-on-stdin", "", kHidden, "behind the secret: variables, as -H hands them over",
       &raw.env_on_stdin},
      {"--monitor-interval", "S", kHidden, "nothing polls", &raw.monitor_interval},
      {"--start-method", "NAME", kHidden, "of Python", &raw.start_method},
      {"--event-log-handler", "NAME", kHidden, "of Python", &raw.event_log_handler},
      {"--logs-specs", "NAME", kHidden, "of Python", &raw.logs_specs},
  };
}

struct Advice {
  std::string_view name, text;
};

// What people type who come from mpirun, srun or torchrun, where the nearest name would mislead.
constexpr Advice kAdvice[] = {
    {"--allow-run-as-root", "c10d-run runs as root as it is"},
    {"--bind-to", "write --bind none, share, core, l3, numa or socket"},
    {"--chdir", "write --wdir DIR"},
    {"--cpu-bind", "write --bind none, share, core, l3, numa or socket"},
    {"--display-map", "write -v"},
    {"--host", "write -H HOST:N,.."},
    {"--label", "lines have the prefix \"[rank] \" as it is"},
    {"--log-line-prefix-template", "the prefix is \"[rank] \"; --no-prefix leaves it out"},
    {"--machinefile", "write --hostfile FILE"},
    {"--map-by", "ranks are numbered host by host; --bind says which CPUs they get"},
    {"--mca", "that is for Open MPI; set OMPI_MCA_* with -x, and use --via mpirun"},
    {"--ntasks", "write -n N"},
    {"--output-filename", "write --log-dir DIR -t 3"},
    {"--oversubscribe", "there may be more ranks than CPUs as it is"},
    {"--report-bindings", "write -v"},
    {"--tag-output", "lines have the prefix \"[rank] \" as it is"},
    {"--timestamp-output", "write --timestamps"},
    {"--time", "write --timeout S"},
    {"--wd", "write --wdir DIR"},
};

}  // namespace

std::vector<OptionRow> option_table(RawOptions& raw) {
  std::vector<OptionRow> rows = own_rows(raw);
  std::vector<OptionRow> torchruns = torchruns_rows(raw);
  std::move(torchruns.begin(), torchruns.end(), std::back_inserter(rows));
  return rows;
}

std::string_view advice_for(std::string_view name) {
  const auto found = std::find_if(std::begin(kAdvice), std::end(kAdvice),
                                  [&](const Advice& advice) { return advice.name == name; });
  return found == std::end(kAdvice) ? std::string_view() : found->text;
}

}}  // namespace c10d::v0
