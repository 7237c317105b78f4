// SPDX-License-Identifier: BSD-3-Clause
#include "examples/nn/trace.h"

#include <fmt/format.h>

#include <fstream>
#include <algorithm>
#include <stdexcept>

namespace nn {

void Trace::add(Track track, std::string name, Clock::time_point begin, Clock::time_point end) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  spans_.push_back({track, std::move(name), begin, end});
}

void Trace::write(c10d::ProcessGroup& group, const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto micros = [](Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  std::string text = fmt::format(
      R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"rank {0}"}}}},
{{"ph":"M","pid":{0},"tid":0,"name":"thread_name","args":{{"name":"compute"}}}},
{{"ph":"M","pid":{0},"tid":1,"name":"thread_name","args":{{"name":"communication"}}}})",
      group.rank());
  for (const Span& span : spans_)
    text += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"ts\":{:.3f},"
  int tracks = 2;
  for (const Span& span : spans_) tracks = std::max(tracks, static_cast<int>(span.track) + 1);
  for (int track = 2; track < tracks; ++track)
    text += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\","
        "\"args\":{{\"name\":\"replica {}\"}}}}",
        group.rank(), track, track - 2);
        "\"dur\":{:.3f}}}",
        group.rank(), static_cast<int>(span.track), span.name,
        micros(span.begin.time_since_epoch()), micros(span.end - span.begin));
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size()));
  const std::uint64_t own = text.size();
  group.all_gather(sizes, std::span(&own, 1));
  std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::uint8_t> all(total);
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            text.size());
  group.all_gather_v(all, bytes, counts);
  if (group.rank() != 0) return;
  std::ofstream file(path, std::ios::binary);
  file << "{\"traceEvents\":[\n";
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    if (offset != 0) file << ",\n";
    file.write(reinterpret_cast<const char*>(all.data()) + offset,
               static_cast<std::streamsize>(count));
    offset += count;
  }
  file << "\n]}\n";
  if (!file) throw std::runtime_error(fmt::format("--trace {}: cannot be written", path));
}

}  // namespace nn
