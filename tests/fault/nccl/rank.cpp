// SPDX-License-Identifier: BSD-3-Clause
// One rank of a fault test of nccl, as a process: c10d-fault-nccl RANK FOLDER. It obeys the lines
// of its input one after the other, and answers each by "ok LINE", "wrong LINE" or an error. Only
// "abort" does not wait for its turn. It dies with its parent.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c10d/batch.h"
#include "c10d/cuda.h"
#include "c10d/init.h"
#include "src/device/gpu.h"
#include "tests/fault/say.h"
#include "tests/nccl/graph.h"

namespace c10d::fault { namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kCount = 4;  // elements of a shard

struct Wrong {};
void expect(bool right) {
  if (!right) throw Wrong{};
}

class Rank {
 public:
  Rank(int rank, std::string folder) : rank_(rank), folder_(std::move(folder)) {}

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    step_.clear();
    start_ = steady_clock::now();
    try {
      commands().at(name)(*this, words);
      say("ok " + line);
    } catch (const Wrong&) {
      say("wrong " + (step_.empty() ? line : step_));
    } catch (const std::exception& error) {
      const auto taken = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start_);
      say("took " + std::to_string(taken.count()) + " " + (step_.empty() ? line : step_));
      say_error(error);
    }
  }
  void abort() const {
    const std::lock_guard lock(mutex_);
    group_.abort("told to");
  }

 private:
  using Command = std::function<void(Rank&, std::istringstream&)>;
  static std::map<std::string, Command> beginnings();
  static std::map<std::string, Command> ops();
  static std::map<std::string, Command> reductions();
  static std::map<std::string, Command> messages();
  static std::map<std::string, Command> uses();
  static std::map<std::string, Command> ends();
  // All of them.
  static const std::map<std::string, Command>& commands();

  int size() const { return group_.size(); }
  float sum() const { return static_cast<float>(size() * (size() + 1)) / 2; }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  CallOptions on() const { return {.stream = *stream_}; }
  View in(std::size_t count = kCount) {
    return {in_.device_data(), count, DType::f32, in_.device()};
  }
  View out(std::size_t count = kCount) {
    return {out_.device_data(), count, DType::f32, out_.device()};
  }

  // init NAME MILLISECONDS RANK...: of this size and in this order.
  void init(std::istringstream& words) {
    std::string name;
    std::int64_t timeout = 0;
    words >> name >> timeout;
    int place = -1, count = 0;
    for (int rank = 0; words >> rank; ++count)
      if (rank == rank_) place = count;
    drop();
    auto store = make_file_store(folder_ + "/" + name, count, milliseconds(timeout));
    ProcessGroup made = init_process_group({.backend = "nccl",
                                            .store = std::move(store),
                                            .rank = place,
                                            .size = count,
                                            .device = device_,
                                            .timeout = milliseconds(timeout),
                                            .name = name});
    const std::lock_guard lock(mutex_);
    group_ = std::move(made);
  }
  // As the first of a test: streams and memory, with the number of the rank in it.
  void prepare() {
    const int device = group_.device().index;
    stream_ = std::make_unique<cuda::Stream>(device);
    const std::size_t most = kCount * ranks();
    in_ = cuda::device_allocate<float>(most, device);
    out_ = cuda::device_allocate<float>(most, device);
    put(in(most), static_cast<float>(group_.rank() + 1));
  }
  void put(const View& memory, float value) {
    const std::vector<float> numbers(memory.count, value);
    cuda::copy(memory, numbers, *stream_);
    stream_->synchronize();
  }
  // What is in the output once all on the stream is done.
  void expect_out(const std::vector<float>& expected) {
    std::vector<float> got(expected.size());
    cuda::copy(got, out(expected.size()), *stream_);
    stream_->synchronize();
    if (const Failure* failure = group_.failure()) throw_failure(*failure);
    expect(got == expected);
  }
  void expect_all(float value, std::size_t count = kCount) {
    expect_out(std::vector<float>(count, value));
  }
  void expect_max() { expect_all(static_cast<float>(size())); }
  // Of the bits of all numbers.
  void expect_bxor() {
    std::uint32_t bits = 0;
    for (int r = 0; r < size(); ++r)
      bits ^= std::bit_cast<std::uint32_t>(static_cast<float>(r + 1));
    expect_all(std::bit_cast<float>(bits));
  }
  static View bits(View view) {
    view.dtype = DType::u32;
    return view;
  }
  // Shard r holds r + 1.
  void expect_shards() {
    std::vector<float> expected;
    for (std::size_t r = 0; r < ranks(); ++r) expected.insert(expected.end(), kCount, r + 1.0F);
    expect_out(expected);
  }
  std::vector<std::size_t> counts() const { return std::vector<std::size_t>(ranks(), kCount); }
  void exchange() {
    const int next = (group_.rank() + 1) % size(), last = (group_.rank() + size() - 1) % size();
    Batch batch = group_.batch(on());
    batch.add(Send{in(), next, 0});
    batch.add(Recv{out(), last, 0});
    batch.submit();
    expect_all(static_cast<float>(last + 1));
  }
  // The output is read on another stream, which nothing but the op's order holds back.
  void follow() {
    const cuda::Stream follower(group_.device().index);
    put(out(), 0);
    const Work work = group_.async().all_reduce(out(), in(), on());
    work.synchronize_stream(follower);
    std::vector<float> got(kCount);
    cuda::copy(got, out(), follower);
    follower.synchronize();
    expect(got == std::vector<float>(kCount, sum()));
    work.wait();
  }
  // Reductions that are composed, on two streams at a time.
  void two_streams() {
    const int device = group_.device().index;
    const cuda::Stream other(device);
    const auto more = cuda::device_allocate<float>(kCount, device);
    put(more, static_cast<float>(10 * (group_.rank() + 1)));
    group_.all_reduce(out(), in(), ReduceOp::max, on());
    group_.all_reduce(more, ReduceOp::min, {.stream = other});
    other.synchronize();
    expect_all(static_cast<float>(size()));
    std::vector<float> got(kCount);
    cuda::copy(got, more, other);
    other.synchronize();
    expect(got == std::vector<float>(kCount, 10));
  }
  // Of ops that NCCL has, and of others.
  void mixed_batch() {
    Batch batch = group_.batch(on());
    batch.add(AllReduce{out(), in(), ReduceOp::max});
    batch.add(Broadcast{out(2 * kCount).slice(kCount, kCount), in(), 0});
    batch.submit();
    expect_max();
  }
  void graph() {
    const OnGpu here(group_.device().index);
    const nccl_test::Graph graph(*stream_, [&] {
      group_.all_reduce(out(), in(), on());
      const Work work = group_.async().broadcast(out(), 0, on());
      work.synchronize_stream(*stream_);
      group_.all_reduce(out(), ReduceOp::max, on());
    });
    graph.launch(*stream_);
    expect_all(sum());
  }
  void events() {
    const int device = group_.device().index;
    const cuda::Event start(device, cuda::Event::Timing::on), end(device, cuda::Event::Timing::on);
    start.record(*stream_);
    cuda::copy(out(), in(), *stream_);
    end.record(*stream_);
    end.wait(*stream_);
    end.synchronize();
    expect(end.done() && end.milliseconds_since(start) >= 0);
    expect_all(static_cast<float>(group_.rank() + 1));
  }
  // An op in a group of all ranks.
  void use(ProcessGroup& part) {
    const auto change = [&] {
      const std::lock_guard lock(mutex_);
      std::swap(group_, part);
    };
    change();
    try {
      group_.all_reduce(out(), in(), on());
      expect_all(sum());
    } catch (...) {
      change();
      throw;
    }
    change();
  }
  void new_group() {
    std::vector<int> all;
    for (int r = 0; r < size(); ++r) all.push_back(r);
    ProcessGroup part = group_.new_group(all);
    use(part);
    part.shutdown(std::chrono::seconds(3));
  }
  void split() {
    ProcessGroup part = group_.split(0);
    use(part);
  }
  // Once no rank has an op in it.
  void abort_part() {
    ProcessGroup part = group_.split(0);
    use(part);
    group_.async().barrier(on()).wait();
    part.abort("told to");
  }
  // send|recv DTYPE COUNT PEER TAG
  void message(std::istringstream& words, bool is_send) {
    std::string dtype;
    std::size_t count = 0;
    int peer = 0;
    std::uint32_t tag = 0;
    words >> dtype >> count >> peer >> tag;
    View view = is_send ? in(count) : out(count);
    view.dtype = dtype == "i32" ? DType::i32 : DType::f32;
    (is_send ? group_.isend(view, peer, tag, on()) : group_.irecv(view, peer, tag, on())).wait();
  }
  // post send|recv, to or from the other of two ranks.
  void post(std::istringstream& words) {
    std::string end;
    words >> end;
    const int other = 1 - group_.rank();
    works_.push_back(end == "send" ? group_.isend(in(), other, 0, on())
                                   : group_.irecv(out(), other, 0, on()));
  }
  // call OP DTYPE COUNT ROOT gpu|cpu
  void call(std::istringstream& words) {
    std::string op, dtype, memory;
    std::size_t count = 0;
    int root = 0;
    words >> op >> dtype >> count >> root >> memory;
    std::vector<float> host(count);
    View view = memory == "cpu" ? View(host) : out(count);
    view.dtype = dtype == "i32" ? DType::i32 : DType::f32;
    const CallOptions options = memory == "cpu" ? CallOptions{} : on();
    op == "broadcast" ? group_.async().broadcast(view, root, options).wait()
                      : group_.async().all_reduce(view, options).wait();
  }
  void fork_child() {
    const pid_t child = fork();
    if (child == 0) {
      try {
        group_.all_reduce(out(), on());
      } catch (const DistError& error) {
        group_ = {};
        _exit(error.code() == Code::forked_child ? 0 : 1);
      }
      _exit(1);
    }
    int status = 0;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  void drop() {
    ProcessGroup ended;
    const std::lock_guard lock(mutex_);
    std::swap(ended, group_);
  }

  const int rank_;
  const std::string folder_;
  std::optional<int> device_;
  mutable std::mutex mutex_;  // of group_: "abort" comes from another thread
  ProcessGroup group_;
  std::unique_ptr<cuda::Stream> stream_;
  Buffer<float> in_, out_, memory_;
  std::string step_;                // of a tour
  steady_clock::time_point start_;  // of the step
  std::vector<Work> works_;
};

const std::map<std::string, Rank::Command>& Rank::commands() {
  static const std::map<std::string, Command> all = [] {
    std::map<std::string, Command> made = beginnings();
    made.merge(ops());
    made.merge(reductions());
    made.merge(messages());
    made.merge(uses());
    made.merge(ends());
    return made;
  }();
  return all;
}

std::map<std::string, Rank::Command> Rank::beginnings() {
  using Words = std::istringstream;
  return {
      {"device", [](Rank& r, Words& words) { words >> r.device_.emplace(); }},
      {"set",  // NAME VALUE
       [](Rank&, Words& words) {
         std::string name, value;
         words >> name >> value;
         setenv(name.c_str(), value.c_str(), 1);
       }},
      {"init", [](Rank& r, Words& words) { r.init(words); }},
      {"prepare", [](Rank& r, Words&) { r.prepare(); }},
  };
}

// Ops whose results are looked at.
std::map<std::string, Rank::Command> Rank::ops() {
  using Words = std::istringstream;
  return {
      {"all_reduce",
       [](Rank& r, Words&) {
         r.group_.all_reduce(r.out(), r.in(), r.on());
         r.expect_all(r.sum());
       }},
      {"premul",
       [](Rank& r, Words&) {
         r.group_.all_reduce(r.out(), r.in(), ReduceOp::premul(2), r.on());
         r.expect_all(2 * r.sum());
       }},
      {"reduce",
       [](Rank& r, Words&) {
         r.group_.reduce(r.out(), r.in(), 0, r.on());
         if (r.group_.rank() == 0) r.expect_all(r.sum());
       }},
      {"broadcast",
       [](Rank& r, Words&) {
         r.group_.broadcast(r.out(), r.in(), 1, r.on());
         r.expect_all(2);
       }},
      {"all_gather",
       [](Rank& r, Words&) {
         r.group_.all_gather(r.out(kCount * r.ranks()), r.in(), r.on());
         r.expect_shards();
       }},
      {"all_gather_v",
       [](Rank& r, Words&) {
         r.group_.all_gather_v(r.out(kCount * r.ranks()), r.in(), r.counts(), r.on());
         r.expect_shards();
       }},
      {"reduce_scatter",
       [](Rank& r, Words&) {
         r.group_.reduce_scatter(r.out(), r.in(kCount * r.ranks()), r.on());
         r.expect_all(r.sum());
       }},
      {"reduce_scatter_v",
       [](Rank& r, Words&) {
         r.group_.reduce_scatter_v(r.out(), r.in(kCount * r.ranks()), r.counts(), ReduceOp::sum,
                                   r.on());
         r.expect_all(r.sum());
       }},
      {"barrier", [](Rank& r, Words&) { r.group_.barrier(r.on()); }},
  };
}

// Those that NCCL lacks.
std::map<std::string, Rank::Command> Rank::reductions() {
  using Words = std::istringstream;
  return {
      {"max",
       [](Rank& r, Words&) {
         r.group_.all_reduce(r.out(), r.in(), ReduceOp::max, r.on());
         r.expect_max();
       }},
      {"bxor",
       [](Rank& r, Words&) {
         r.group_.all_reduce(bits(r.out()), bits(r.in()), ReduceOp::bxor, r.on());
         r.expect_bxor();
       }},
      {"avg",
       [](Rank& r, Words&) {
         r.group_.all_reduce(r.out(), r.in(), ReduceOp::avg, r.on());
         r.expect_all(r.sum() / static_cast<float>(r.size()));
       }},
      {"reduce_max",
       [](Rank& r, Words&) {
         r.group_.reduce(r.out(), r.in(), 1, ReduceOp::max, r.on());
         if (r.group_.rank() == 1) r.expect_max();
       }},
      {"reduce_bxor",
       [](Rank& r, Words&) {
         r.group_.reduce(bits(r.out()), bits(r.in()), 1, ReduceOp::bxor, r.on());
         if (r.group_.rank() == 1) r.expect_bxor();
       }},
      {"reduce_scatter_max",
       [](Rank& r, Words&) {
         r.group_.reduce_scatter(r.out(), r.in(kCount * r.ranks()), ReduceOp::max, r.on());
         r.expect_max();
       }},
      {"reduce_scatter_bxor",
       [](Rank& r, Words&) {
         r.group_.reduce_scatter(bits(r.out()), bits(r.in(kCount * r.ranks())), ReduceOp::bxor,
                                 r.on());
         r.expect_bxor();
       }},
      {"scan",
       [](Rank& r, Words&) {
         r.group_.scan(r.out(), r.in(), ReduceOp::sum, r.on());
         const auto n = static_cast<float>(r.group_.rank() + 1);
         r.expect_all(n * (n + 1) / 2);
       }},
  };
}

// What sends and receives.
std::map<std::string, Rank::Command> Rank::messages() {
  using Words = std::istringstream;
  return {
      {"gather",
       [](Rank& r, Words&) {
         r.group_.gather(r.out(kCount * r.ranks()), r.in(), 0, r.on());
         if (r.group_.rank() == 0) r.expect_shards();
       }},
      {"scatter",
       [](Rank& r, Words&) {
         r.group_.scatter(r.out(), r.in(kCount * r.ranks()), 1, r.on());
         r.expect_all(2);
       }},
      // Other ranks than the root give no buffer for what only it uses.
      {"gather_at_root",
       [](Rank& r, Words&) {
         const bool is_root = r.group_.rank() == 0;
         r.group_.gather(is_root ? r.out(kCount * r.ranks()) : View{}, r.in(), 0, r.on());
         if (is_root) r.expect_shards();
       }},
      {"scatter_at_root",
       [](Rank& r, Words&) {
         const bool is_root = r.group_.rank() == 1;
         r.group_.scatter(r.out(), is_root ? r.in(kCount * r.ranks()) : ConstView{}, 1, r.on());
         r.expect_all(2);
       }},
      {"all_to_all",
       [](Rank& r, Words&) {
         r.group_.all_to_all(r.out(kCount * r.ranks()), r.in(kCount * r.ranks()), r.on());
         r.expect_shards();
       }},
      {"gather_v",
       [](Rank& r, Words&) {
         r.group_.gather_v(r.out(kCount * r.ranks()), r.in(), r.counts(), 1, r.on());
         if (r.group_.rank() == 1) r.expect_shards();
       }},
      {"scatter_v",
       [](Rank& r, Words&) {
         r.group_.scatter_v(r.out(), r.in(kCount * r.ranks()), r.counts(), 1, r.on());
         r.expect_all(2);
       }},
      {"all_to_all_v",
       [](Rank& r, Words&) {
         r.group_.all_to_all_v(r.out(kCount * r.ranks()), r.in(kCount * r.ranks()), r.counts(),
                               r.counts(), r.on());
         r.expect_shards();
       }},
      {"batch", [](Rank& r, Words&) { r.exchange(); }},
      {"mixed_batch", [](Rank& r, Words&) { r.mixed_batch(); }},
  };
}

// More than one op.
std::map<std::string, Rank::Command> Rank::uses() {
  using Words = std::istringstream;
  return {
      {"async",
       [](Rank& r, Words&) {
         const Work work = r.group_.async().all_reduce(r.out(), r.in(), r.on());
         work.synchronize_stream(*r.stream_);
         work.wait();
         r.expect_all(r.sum());
       }},
      {"follow", [](Rank& r, Words&) { r.follow(); }},
      {"two_streams", [](Rank& r, Words&) { r.two_streams(); }},
      {"allocate",
       [](Rank& r, Words&) { r.memory_ = r.group_.allocate<float>(kCount, r.group_.device()); }},
      {"graph", [](Rank& r, Words&) { r.graph(); }},
      {"events", [](Rank& r, Words&) { r.events(); }},
      {"new_group", [](Rank& r, Words&) { r.new_group(); }},
      {"split", [](Rank& r, Words&) { r.split(); }},
      {"abort_part", [](Rank& r, Words&) { r.abort_part(); }},
      {"host",
       [](Rank& r, Words&) {
         float number = static_cast<float>(r.group_.rank() + 1);
         r.group_.all_reduce(std::span(&number, 1));
         expect(number == r.sum());
       }},
  };
}

// The others.
std::map<std::string, Rank::Command> Rank::ends() {
  using Words = std::istringstream;
  return {
      // Commands without arguments, up to the first that fails: then the others learn that this
      // rank goes no further.
      {"tour",
       [](Rank& r, Words& words) {
         try {
           while (words >> r.step_) {
             r.start_ = steady_clock::now();
             commands().at(r.step_)(r, words);
           }
         } catch (const std::exception&) {
           // What this rank met by itself, the watcher of the group may be about to find.
           const auto end = steady_clock::now() + std::chrono::seconds(1);
           while (!r.group_.failure() && steady_clock::now() < end) std::this_thread::yield();
           r.group_.abort("it goes no further");
           throw;
         }
       }},
      // An op that others may still be in, and its end.
      {"begin",  // [MILLISECONDS]
       [](Rank& r, Words& words) {
         CallOptions options = r.on();
         if (std::int64_t limit = 0; words >> limit) options.timeout = milliseconds(limit);
         r.works_.push_back(r.group_.async().all_reduce(r.out(), r.in(), options));
       }},
      {"enqueue", [](Rank& r, Words&) { r.group_.all_reduce(r.out(), r.in(), r.on()); }},
      {"wait",
       [](Rank& r, Words&) {
         const std::vector<Work> works = std::exchange(r.works_, {});
         wait_all(works);
       }},
      {"send", [](Rank& r, Words& words) { r.message(words, true); }},
      {"recv", [](Rank& r, Words& words) { r.message(words, false); }},
      {"post", [](Rank& r, Words& words) { r.post(words); }},
      {"recv_any", [](Rank& r, Words&) { r.group_.recv(r.out(), kAnySource, 0, r.on()); }},
      {"call", [](Rank& r, Words& words) { r.call(words); }},
      {"fork", [](Rank& r, Words&) { r.fork_child(); }},
      {"shutdown", [](Rank& r, Words&) { r.group_.shutdown(std::chrono::seconds(3)); }},
      {"shutdown_within",  // MILLISECONDS
       [](Rank& r, Words& words) {
         std::int64_t limit = 0;
         words >> limit;
         r.group_.shutdown(milliseconds(limit));
       }},
      {"drop", [](Rank& r, Words&) { r.drop(); }},
      {"leave",
       [](Rank& r, Words&) {
         r.works_.clear();
         r.memory_ = {};
         r.drop();
       }},
      {"free",
       [](Rank& r, Words&) {
         r.stream_.reset();
         r.in_ = {};
         r.out_ = {};
       }},
  };
}

int run(int rank, const std::string& folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Rank self(rank, folder);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;
  bool is_over = false;
  std::thread worker([&] {
    while (true) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_over || !lines.empty(); });
      if (lines.empty()) return;
      const std::string line = std::move(lines.front());
      lines.pop_front();
      lock.unlock();
      self.obey(line);
    }
  });
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "abort") {
      self.abort();
      continue;
    }
    const std::lock_guard lock(mutex);
    lines.push_back(line);
    changed.notify_one();
  }
  {
    const std::lock_guard lock(mutex);
    is_over = true;
    changed.notify_one();
  }
  worker.join();
  return 0;
}

}}  // namespace c10d::fault

int main(int argc, char** argv) {
  return argc == 3 ? c10d::fault::run(std::stoi(argv[1]), argv[2]) : 2;
}
