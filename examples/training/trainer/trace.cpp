// SPDX-License-Identifier: BSD-3-Clause
#include "examples/training/trainer/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "c10d/parallel/parameters.h"
#include "examples/training/nn/errors.h"

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
  int tracks = 2;
  for (const Span& span : spans_) tracks = std::max(tracks, static_cast<int>(span.track) + 1);
  for (int track = 2; track < tracks; ++track)
    text += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\","
        "\"args\":{{\"name\":\"replica {}\"}}}}",
        group.rank(), track, track - 2);
  for (const Span& span : spans_)
    text += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f}}}",
        group.rank(), static_cast<int>(span.track), span.name,
        micros(span.begin.time_since_epoch()), micros(span.end - span.begin));
  const std::vector<std::string> texts = c10d::parallel::gather_texts(group, text);
  if (group.rank() != 0) return;
  std::ofstream file(path, std::ios::binary);
  file << fmt::format("{{\"traceEvents\":[\n{}\n]}}\n", fmt::join(texts, ",\n"));
  if (!file) throw_runtime("--trace {}: cannot be written", path);
}

}  // namespace nn
