// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/campaign.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "c10d/capability.h"
#include "tests/chaos/processes.h"

namespace c10d::chaos {
namespace {

constexpr char kField = '\x1f', kEnd = '\x1e';

double seconds_since(std::int64_t start) { return static_cast<double>(steady_now() - start) / 1e9; }

// What all workers share.
struct Shared {
  std::atomic<std::uint64_t> next{0};  // block to run
  std::atomic<bool> stop{false};
};

// Runs blocks of cases, and tells the parent through a pipe.
class Worker {
 public:
  Worker(const CampaignOptions& options, Shared& shared, std::int64_t start, int to)
      : options_(options), shared_(shared), start_(start), to_(to) {
    // mpirun takes a second to start: fewer of those.
    for (int round = 0; round < 4; ++round)
      for (std::size_t i = 0; i < options.stages.size(); ++i)
        if (options.stages[i].launcher.empty() || round == 0) order_.push_back(i);
  }

  void run() {
    adopt_orphans();
    while (!is_over()) {
      const std::uint64_t block = shared_.next++;
      const std::size_t stage = order_[block % order_.size()];
      // How many blocks of this stage came before.
      const auto same = [&](auto end) {
        return static_cast<std::uint64_t>(std::count(order_.begin(), end, stage));
      };
      const std::uint64_t number =
          block / order_.size() * same(order_.end()) +
          same(order_.begin() + static_cast<std::ptrdiff_t>(block % order_.size()));
      const std::uint64_t first = (options_.seed / kBlock + number) * kBlock;
      const std::uint64_t last = options_.cases == 0 ? UINT64_MAX : options_.seed + options_.cases;
      if (first >= last) {
        if (block / order_.size() * order_.size() > last * order_.size()) return;
        if (++idle_ > 4 * order_.size()) return;
        continue;
      }
      idle_ = 0;
      run_block(options_.stages[stage], std::max(first, options_.seed),
                std::min(first + kBlock, last));
    }
  }

 private:
  bool is_over() const {
    return is_interrupted() || shared_.stop ||
           (options_.seconds > 0 && seconds_since(start_) >= options_.seconds);
  }

  void run_block(const Stage& stage, std::uint64_t first, std::uint64_t last) {
    std::optional<Crew> crew;
    std::uint64_t seed = first;
    Deviation deviation = Deviation::none;
    const auto end_crew = [&] {
      if (!crew) return;
      for (const Finding& finding : crew->end()) tell_finding(stage, seed, deviation, finding, {});
      crew.reset();
    };
    for (std::uint64_t at = first; at < last && !is_over(); ++at) {
      if (crew && !crew->is_whole()) end_crew();
      seed = at;
      const Plan plan = draw(stage.backend, seed);
      deviation = plan.deviation;
      if (!crew) crew.emplace(stage, plan.ranks, options_.plant, options_.bounds);
      const std::int64_t begin = steady_now();
      const Verdict verdict = crew->run(plan);
      if (is_interrupted()) break;
      tell({"case", stage.label, std::to_string(seed), std::string(to_string(deviation)),
            verdict.deviated ? "1" : "0", std::to_string(verdict.told),
            std::to_string(verdict.recovered), std::to_string((steady_now() - begin) / 1'000'000),
            describe(plan)});
      for (const Finding& finding : verdict.findings)
        tell_finding(stage, seed, deviation, finding, verdict.log);
    }
    end_crew();
  }

  void tell_finding(const Stage& stage, std::uint64_t seed, Deviation deviation,
                    const Finding& finding, const std::string& log) {
    tell({"finding", stage.label, std::to_string(seed), std::string(to_string(deviation)),
          finding.kind, finding.text, describe(draw(stage.backend, seed)), log});
  }

  void tell(const std::vector<std::string>& fields) const {
    std::string text;
    for (const std::string& field : fields) text += field + kField;
    text.back() = kEnd;
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = write(to_, text.data() + done, text.size() - done);
      if (n < 0 && errno != EINTR) return;
      if (n > 0) done += static_cast<std::size_t>(n);
    }
  }

  const CampaignOptions& options_;
  Shared& shared_;
  const std::int64_t start_;
  const int to_;
  std::vector<std::size_t> order_;
  std::size_t idle_ = 0;
};

// Starts the workers and takes down what they tell.
class Campaign {
 public:
  explicit Campaign(const CampaignOptions& options) : options_(options), start_(steady_now()) {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory");
    shared_ = new (memory) Shared;
  }
  ~Campaign() {
    for (const WorkerProcess& worker : workers_)
      if (worker.from >= 0) end(worker);
    munmap(shared_, sizeof(Shared));
  }
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  Outcome run() {
    for (int i = 0; i < options_.jobs; ++i) start_worker();
    std::int64_t shown = steady_now();
    bool told = false;
    while (std::ranges::any_of(workers_, [](const auto& worker) { return worker.from >= 0; })) {
      std::vector<pollfd> ready;
      for (const WorkerProcess& worker : workers_)
        ready.push_back({.fd = worker.from, .events = POLLIN, .revents = 0});
      poll(ready.data(), ready.size(), 500);
      for (std::size_t i = 0; i < workers_.size(); ++i)
        if (ready[i].revents != 0) read_from(workers_[i]);
      const bool enough = std::ranges::any_of(outcome_.findings, [&](const Found& found) {
        return !options_.keep_going || found.kind == options_.until;
      });
      if ((is_interrupted() || enough) && !std::exchange(told, true)) {
        shared_->stop = true;
        if (is_interrupted())
          for (const WorkerProcess& worker : workers_) kill(worker.pid, SIGTERM);
      }
      if (!options_.verbose && seconds_since(shown) >= 10) {
        shown = steady_now();
        std::printf("chaos: %4.0f s, %llu cases, %zu findings\n", seconds_since(start_),
                    static_cast<unsigned long long>(cases_), outcome_.findings.size());
        std::fflush(stdout);
      }
    }
    outcome_.seconds = seconds_since(start_);
    outcome_.interrupted = is_interrupted();
    return std::move(outcome_);
  }

 private:
  struct WorkerProcess {
    pid_t pid;
    int from;
    std::string text;
  };

  void start_worker() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::fflush(stdout);
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid == 0) {
      setpgid(0, 0);
      close(ends[0]);
      try {
        Worker(options_, *shared_, start_, ends[1]).run();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "chaos: a worker failed: %s\n", error.what());
        end_descendants();
        _exit(3);
      }
      end_descendants();
      _exit(0);
    }
    close(ends[1]);
    workers_.push_back({pid, ends[0], {}});
  }

  void end(const WorkerProcess& worker) {
    kill(worker.pid, SIGTERM);
    close(worker.from);
    waitpid(worker.pid, nullptr, 0);
  }

  void read_from(WorkerProcess& worker) {
    char buffer[16384];
    const ssize_t n = read(worker.from, buffer, sizeof buffer);
    if (n > 0) {
      worker.text.append(buffer, static_cast<std::size_t>(n));
      for (std::size_t at; (at = worker.text.find(kEnd)) != worker.text.npos;) {
        take_down(worker.text.substr(0, at));
        worker.text.erase(0, at + 1);
      }
    } else if (n == 0 || errno != EINTR) {
      close(std::exchange(worker.from, -1));
      int status = 0;
      waitpid(worker.pid, &status, 0);
      if (status != 0) found({.kind = "worker", .text = "a worker failed", .seed = options_.seed});
    }
  }

  void take_down(const std::string& record) {
    std::vector<std::string> f;
    std::istringstream in(record);
    for (std::string field; std::getline(in, field, kField);) f.push_back(field);
    f.resize(9);
    Count& count = outcome_.counts[f[1]][f[3]];
    if (f[0] == "case") {
      ++count.cases;
      ++cases_;
      count.deviated += f[4] == "1";
      count.told += f[5] != "0";
      count.recovered += f[6] != "0";
      if (options_.verbose)
        std::printf("%-7s seed %s: %s; %s, %s told, %s went on, %s ms\n", f[1].c_str(),
                    f[2].c_str(), f[8].c_str(), f[4] == "1" ? "deviated" : "no deviation",
                    f[5].c_str(), f[6].c_str(), f[7].c_str());
    } else {
      ++count.findings;
      found({f[1], f[3], f[4], f[5], std::stoull(f[2])});
      std::printf("         %s\n", f[6].c_str());
      if (options_.verbose && !f[7].empty()) std::printf("  log:\n%s\n", f[7].c_str());
    }
    std::fflush(stdout);
  }

  void found(Found finding) {
    finding.plant = options_.plant;
    std::printf("finding: %s: %s seed %llu: %s\n         repeat: %s\n", finding.kind.c_str(),
                finding.stage.c_str(), static_cast<unsigned long long>(finding.seed),
                finding.text.c_str(), repeat_command(finding).c_str());
    outcome_.findings.push_back(std::move(finding));
  }

  const CampaignOptions& options_;
  const std::int64_t start_;
  Shared* shared_ = nullptr;
  std::vector<WorkerProcess> workers_;
  Outcome outcome_;
  std::uint64_t cases_ = 0;
};

}  // namespace

Outcome run_campaign(const CampaignOptions& options) { return Campaign(options).run(); }

std::string repeat_command(const Found& found) {
  return "chaos --backend " + found.stage + " --seed " + std::to_string(found.seed) +
         " --cases 1 -v" +
         (found.plant == Plant::none ? "" : " --plant " + std::string(to_string(found.plant)));
}

}  // namespace c10d::chaos
