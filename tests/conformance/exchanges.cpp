// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>

#include "c10d/error.h"
#include "tests/conformance/rank.h"

namespace c10d::conformance {

// Message `number` of rank `from`: its memory here, whether to send it or to receive it.
struct Rank::Message {
  Numbers numbers;
  int from;
  std::byte* data;
  std::size_t count;

  const Buffers* buffers;

  View view() const { return buffers->view(data, count, numbers.dtype); }
  void fill() const { conformance::fill(numbers, from, 0, data, count); }
};

Rank::Message Rank::message(const Case& c, int from, std::size_t number) {
  Message m{c.numbers, from, nullptr, c.size, &buffers_};
  m.numbers.seed += number;
  m.data = buffers_.take(c.size * size_of(c.numbers.dtype), c.shift * size_of(c.numbers.dtype));
  return m;
}

void Rank::check_message(const Case& c, const Message& m) {
  expected_.resize(m.view().bytes());
  conformance::fill(m.numbers, m.from, 0, expected_.data(), m.count);
  check(c, difference(m.numbers.dtype, expected_.data(), m.data, m.count));
}

void Rank::run_exchange(const Case& c, Group& g) {
  constexpr std::size_t kMost = 8;  // of a ring
  const std::size_t messages = std::max(kMost, static_cast<std::size_t>(g.group.size()));
  buffers_.start(memory_for(c, g),
                 Buffers::needed(messages * c.size * size_of(c.numbers.dtype), messages));
  try {
    // clang-format off
    switch (c.exchange) {
      case Exchange::ring_blocking: ring_blocking(c, g.group); break;
      case Exchange::ring_tags: ring_tags(c, g.group); break;
      case Exchange::any_source: any_source(c, g.group); break;
      case Exchange::ring_batch: ring_batch(c, g.group); break;
      case Exchange::overlapped: overlapped(c, g.group); break;
      case Exchange::collective: break;
    }
    // clang-format on
  } catch (const DistError& error) {
    // Messages of a rank to itself are the one thing that supports() cannot be asked about.
    if (g.group.size() != 1 || error.code() != Code::unsupported) throw;
    ++report_.skipped[error.failure().message];
    return;
  }
  ++report_.checked;
  if (!buffers_.intact()) report_.fail(describe(c) + ": wrote outside of the messages");
}

void Rank::ring_blocking(const Case& c, ProcessGroup& group) {
  const int rank = group.rank(), n = group.size();
  if (n == 1) return;  // nobody could receive what a blocking call sends
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const auto tag = static_cast<std::uint32_t>(c.id);
  const Message out = message(c, rank, 0), in = message(c, previous, 0);
  out.fill();
  buffers_.upload();
  const auto send = [&] { group.send(out.view(), next, tag, options()); };
  const auto receive = [&] {
    const Received received = group.recv(in.view(), previous, tag, options());
    if (received.source != previous || received.count != in.count)
      report_.fail(describe(c) + ": recv names another source or count");
  };
  if (rank % 2 == 0) send();
  receive();
  if (rank % 2 == 1) send();
  buffers_.download();
  check_message(c, in);
}

void Rank::ring_tags(const Case& c, ProcessGroup& group) {
  const int rank = group.rank(), n = group.size();
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const auto tag = static_cast<std::uint32_t>(c.id);
  std::vector<Message> out, in;
  for (std::size_t i = 0; i < 4; ++i) {
    out.push_back(message(c, rank, i));
    in.push_back(message(c, previous, i));
    out.back().fill();
  }
  std::vector<Work> works;
  // Messages 0 and 1 have one tag, 2 and 3 another: order holds per tag only.
  for (const std::size_t i : {0, 2, 1, 3})
    works.push_back(group.isend(out[i].view(), next, tag * 2 + (i < 2 ? 0 : 1)));
  for (const std::size_t i : {2, 3, 0, 1})
    works.push_back(group.irecv(in[i].view(), previous, tag * 2 + (i < 2 ? 0 : 1)));
  for (const Work& work : works) work.wait();
  for (const Message& m : in) check_message(c, m);
}

void Rank::any_source(const Case& c, ProcessGroup& group) {
  const int rank = group.rank(), n = group.size();
  const auto tag = static_cast<std::uint32_t>(c.id);
  if (rank != 0) {
    const Message out = message(c, rank, 0);
    out.fill();
    group.send(out.view(), 0, tag);
    return;
  }
  std::set<int> sources;
  for (int i = 1; i < n; ++i) {
    Message in = message(c, 0, 0);
    in.from = group.recv(in.view(), kAnySource, tag).source;
    if (in.from < 1 || in.from >= n || !sources.insert(in.from).second)
      return report_.fail(describe(c) + ": recv names source " + std::to_string(in.from));
    check_message(c, in);
  }
}

void Rank::ring_batch(const Case& c, ProcessGroup& group) {
  const int rank = group.rank(), n = group.size();
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const auto tag = static_cast<std::uint32_t>(c.id);
  const Message out = message(c, rank, 0), in = message(c, previous, 0);
  out.fill();
  buffers_.upload();
  Batch batch = group.batch(options());
  batch.add(Send{out.view(), next, tag});
  batch.add(Recv{in.view(), previous, tag});
  if (c.async)
    batch.submit_async().wait();
  else
    batch.submit();
  buffers_.download();
  check_message(c, in);
}

void Rank::overlapped(const Case& c, ProcessGroup& group) {
  std::vector<Message> buffers;
  for (std::size_t i = 0; i < 3; ++i) {
    buffers.push_back(message(c, group.rank(), i));
    buffers.back().fill();
  }
  buffers_.upload();
  if (c.async) {
    std::vector<Work> works;
    for (const Message& m : buffers)
      works.push_back(group.async().all_reduce(m.view(), c.numbers.op, options()));
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
  } else {
    Batch batch = group.batch(options());
    for (const Message& m : buffers) batch.add(AllReduce{m.view(), m.view(), c.numbers.op});
    batch.submit();
  }
  buffers_.download();
  for (const Message& m : buffers) {
    expected_.resize(m.view().bytes());
    fill_reduced(m.numbers, group.size(), 0, expected_.data(), m.count);
    check(c, difference(m.numbers.dtype, expected_.data(), m.data, m.count));
  }
}

}  // namespace c10d::conformance
