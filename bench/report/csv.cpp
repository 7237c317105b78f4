// SPDX-License-Identifier: BSD-3-Clause
#include "bench/report/csv.h"

#include <fmt/format.h>

#include "bench/model/bandwidth.h"

namespace c10d::bench {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "";
}

// An algorithm's name is the backend's own and may hold anything.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quotes = "\"";
  for (const char c : text) quotes += c == '"' ? "\"\"" : std::string(1, c);
  return quotes + "\"";
}

}  // namespace

std::string csv_text(const std::vector<CellRecord>& cells) {
  std::string text =
      "op,backend,dtype,redop,root,place,bytes,elems,window,launch,block,order,iters,min_us,"
      "p50_us,p90_us,p99_us,max_us,algbw_gbps,busbw_gbps,membw_gbps,skew_in_us,skew_out_us,"
      "rtt_before_us,rtt_after_us,rtt_bucket,wrong,hash,voluntary_switches,"
      "involuntary_switches,algo,cache,concurrent,burst,device,placement,cpu_us,"
      "graph_ops,net_gbps\n";
  for (const CellRecord& c : cells) {
    if (is_control(c.backend)) continue;
    const std::string root = c.key.root < 0 ? "" : std::to_string(c.key.root);
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}", c.key.op, c.backend, c.key.dtype,
                        c.key.redop, root, c.key.place, c.key.bytes, c.elems, c.window, c.launch,
                        c.block, c.order, c.iters);
    text += fmt::format(",{:.6g},{:.6g},{:.6g},{},{:.6g},{},{},{}", c.us.min, c.us.p50, c.us.p90,
                        number(c.us.p99), c.us.max, number(c.alg), number(c.bus), number(c.mem));
    text += fmt::format(",{},{}", number(c.skew_in), number(c.skew_out));
    text += c.rtt ? fmt::format(",{:.6g},{:.6g},{}", c.rtt->before, c.rtt->after, c.rtt->bucket)
                  : ",,,";
    text += fmt::format(",{},{},{},{},{},{},{},{}", c.wrong, c.hash, c.switches[0], c.switches[1],
                        quoted(c.algo), c.key.cache, c.key.concurrent, c.burst);
    text += fmt::format(",{},{},{},{},{}\n", c.device, c.placement, number(c.cpu_us), c.graph_ops,
                        number(c.net));
  }
  return text;
}

}  // namespace c10d::bench
