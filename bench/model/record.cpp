// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "c10d/error.h"

namespace c10d::bench {
namespace {

// Six significant digits are more than any clock gives.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(rounded(*value)) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

void put_key(Json& line, const CellKey& key) {
  line["op"] = key.op;
  line["bytes"] = key.bytes;
  line["dtype"] = text_or_null(key.dtype);
  line["redop"] = text_or_null(key.redop);
  line["root"] = key.root < 0 ? Json(nullptr) : Json(key.root);
  line["place"] = key.place;
  line["cache"] = key.cache;
  line["concurrent"] = key.concurrent;
}

Json line_of(const char* kind) {
  Json line;
  line["v"] = 1;
  line["t"] = kind;
  return line;
}

std::string text_at(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found == line.end() || found->is_null() ? std::string() : found->get<std::string>();
}

std::optional<double> number_at(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || found->is_null()) return std::nullopt;
  return found->get<double>();
}

CellKey key_at(const Json& line) {
  CellKey key;
  key.op = line.at("op").get<std::string>();
  key.bytes = line.at("bytes").get<std::uint64_t>();
  key.dtype = text_at(line, "dtype");
  key.redop = text_at(line, "redop");
  key.place = text_at(line, "place");
  key.root = static_cast<int>(number_at(line, "root").value_or(-1));
  key.cache = line.value("cache", "hot");
  key.concurrent = line.value("concurrent", 1);
  return key;
}

Json interval(const Estimate& estimate) {
  if (!estimate.ci95) return nullptr;
  return Json::array({rounded(estimate.ci95->low), rounded(estimate.ci95->high)});
}

CellRecord cell_at(const Json& line) {
  CellRecord cell;
  cell.key = key_at(line);
  cell.backend = line.at("backend").get<std::string>();
  cell.algo = text_at(line, "algo");
  cell.device = line.value("device", cell.device);
  cell.placement = line.value("placement", cell.placement);
  cell.cpu_us = number_at(line, "cpu_us");
  cell.elems = line.at("elems").get<std::uint64_t>();
  cell.window = line.value("window", 1);
  cell.burst = line.value("burst", 1);
  cell.graph_ops = line.value("graph_ops", 0);
  cell.launch = line.at("launch").get<int>();
  cell.block = line.at("block").get<int>();
  cell.order = line.value("order", 0);
  cell.iters = line.at("iters").get<std::uint64_t>();
  const Json& us = line.at("us");
  cell.us = {us.at("min").get<double>(), us.at("p50").get<double>(), us.at("p90").get<double>(),
             number_at(us, "p99"), us.at("max").get<double>()};
  const Json& gbps = line.at("gbps");
  cell.alg = number_at(gbps, "alg");
  cell.bus = number_at(gbps, "bus");
  cell.mem = number_at(gbps, "mem");
  cell.net = number_at(gbps, "net");
  cell.skew_in = number_at(line.at("skew_us"), "in");
  cell.skew_out = number_at(line.at("skew_us"), "out");
  cell.sync = line.value("sync", cell.sync);
  cell.clock_us = number_at(line, "clock_us");
  if (const auto rtt = line.find("rtt"); rtt != line.end() && !rtt->is_null())
    cell.rtt = RoundTrip{rtt->at("before").get<double>(), rtt->at("after").get<double>(),
                         text_at(*rtt, "bucket")};
  cell.wrong = line.at("wrong").get<std::uint64_t>();
  cell.hash = text_at(line, "hash");
  cell.switches = line.value("ctxsw", cell.switches);
  if (const auto samples = line.find("samples"); samples != line.end())
    cell.samples = samples->get<std::vector<double>>();
  return cell;
}

}  // namespace

Json to_json(const CellRecord& cell, bool with_samples) {
  Json line = line_of("cell");
  line["op"] = cell.key.op;
  line["backend"] = cell.backend;
  line["algo"] = text_or_null(cell.algo);
  line["device"] = cell.device;
  line["placement"] = cell.placement;
  put_key(line, cell.key);
  line["elems"] = cell.elems;
  line["window"] = cell.window;
  line["burst"] = cell.burst;
  line["graph_ops"] = cell.graph_ops;
  line["launch"] = cell.launch;
  line["block"] = cell.block;
  line["order"] = cell.order;
  line["iters"] = cell.iters;
  line["us"] = {{"min", rounded(cell.us.min)},
                {"p50", rounded(cell.us.p50)},
                {"p90", rounded(cell.us.p90)},
                {"p99", number(cell.us.p99)},
                {"max", rounded(cell.us.max)}};
  line["cpu_us"] = number(cell.cpu_us);
  line["gbps"] = {{"alg", number(cell.alg)},
                  {"bus", number(cell.bus)},
                  {"mem", number(cell.mem)},
                  {"net", number(cell.net)}};
  line["sync"] = cell.sync;
  line["skew_us"] = {{"in", number(cell.skew_in)}, {"out", number(cell.skew_out)}};
  line["clock_us"] = number(cell.clock_us);
  line["rtt"] = nullptr;
  if (cell.rtt) {
    line["rtt"] = {{"before", rounded(cell.rtt->before)},
                   {"after", rounded(cell.rtt->after)},
                   {"bucket", cell.rtt->bucket}};
  }
  line["wrong"] = cell.wrong;
  line["hash"] = text_or_null(cell.hash);
  line["ctxsw"] = cell.switches;
  if (with_samples) line["samples"] = cell.samples;
  return line;
}

Json to_json(const SkipRecord& skip) {
  Json line = line_of("skip");
  line["op"] = skip.key.op;
  line["backend"] = skip.backend;
  put_key(line, skip.key);
  line["code"] = skip.code;
  line["reason"] = skip.reason;
  return line;
}

Json to_json(const CeilRecord& ceil) {
  Json line = line_of("ceil");
  line["kind"] = ceil.kind;
  line["level"] = text_or_null(ceil.level);
  line["bytes"] = ceil.bytes;
  line["launch"] = ceil.launch;
  line["gbps"] = number(ceil.gbps);
  line["us"] = rounded(ceil.us);
  line["cache"] = ceil.hot ? "hot" : "cold";
  if (ceil.streams > 0) line["streams"] = ceil.streams;
  return line;
}

Json to_json(const CompareRecord& compare) {
  Json line = line_of("cmp");
  put_key(line, compare.key);
  line["base"] = compare.base;
  line["other"] = compare.other;
  line["ratio"] = rounded(compare.ratio.value);
  line["ci95"] = interval(compare.ratio);
  line["unit"] = compare.ratio.over_launches ? "launch" : "block";
  line["verdict"] = to_string(compare.verdict);
  return line;
}

Json to_json(const ControlRecord& control) {
  Json line = line_of("ctl");
  line["kind"] = control.kind;
  line["backend"] = control.backend;
  line["ratio"] = rounded(control.ratio.value);
  line["ci95"] = interval(control.ratio);
  line["ok"] = control.trust == Trust::ok;
  line["state"] = to_string(control.trust);
  return line;
}

Json to_json(const WarnRecord& warn) {
  Json line = line_of("warn");
  line["code"] = warn.code;
  line["text"] = warn.text;
  line["only"] = text_or_null(warn.only);
  return line;
}

Json to_json(const FitRecord& fit) {
  Json line = line_of("fit");
  put_key(line, fit.key);
  line.erase("bytes");
  line["backend"] = fit.backend;
  line["alpha_us"] = line["gbps"] = line["n_half"] = line["range"] = nullptr;
  if (fit.line) {
    line["alpha_us"] = rounded(fit.line->alpha);
    line["range"] = {fit.from, fit.to};
    if (fit.line->beta > 0) {
      line["gbps"] = rounded(1e-3 / fit.line->beta);
      line["n_half"] = std::llround(fit.line->alpha / fit.line->beta);
    }
  }
  line["crossover"] = nullptr;
  if (!fit.other.empty())
    line["crossover"] = {{"other", fit.other},
                         {"bytes", fit.overtakes_at ? Json(*fit.overtakes_at) : Json(nullptr)}};
  return line;
}

std::string line_text(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json sample_json(const CellRecord& cell) {
  Json line = line_of("sample");
  line["op"] = cell.key.op;
  line["backend"] = cell.backend;
  put_key(line, cell.key);
  line["launch"] = cell.launch;
  line["block"] = cell.block;
  line["us"] = cell.samples;
  return line;
}

void Results::add(const Json& line) {
  const std::string kind = line.at("t").get<std::string>();
  if (kind == "run") {
    if (run.is_null()) run = line;
    if (text_at(line, "id") != text_at(run, "id"))
      throw InvalidArgument(
          "these are records of two runs, and medians over both say nothing of either: give the "
          "files of one run, or compare two by c10d-bench diff OLD NEW");
    for (const CellRecord& cell : cells) launch_offset = std::max(launch_offset, cell.launch + 1);
  } else if (kind == "env") {
    environments.push_back(line);
  } else if (kind == "cell") {
    CellRecord cell = cell_at(line);
    cell.launch += launch_offset;
    cells.push_back(std::move(cell));
  } else if (kind == "skip") {
    skips.push_back(
        {key_at(line), text_at(line, "backend"), text_at(line, "code"), text_at(line, "reason")});
  } else if (kind == "ceil") {
    ceilings.push_back({line.at("kind").get<std::string>(), text_at(line, "level"),
                        static_cast<std::uint64_t>(number_at(line, "bytes").value_or(0)),
                        line.value("launch", 0), number_at(line, "gbps"), line.value("us", 0.0),
                        line.value("cache", "hot") == "hot", line.value("streams", 0)});
  } else if (kind == "ctl") {
    ControlRecord control{text_at(line, "kind"), text_at(line, "backend"), {}, Trust::ok};
    if (!line.value("ok", true))
      control.trust = text_at(line, "state") == "wide" ? Trust::wide : Trust::off;
    control.ratio.value = line.at("ratio").get<double>();
    if (const auto ci = line.find("ci95"); ci != line.end() && ci->is_array())
      control.ratio.ci95 = Interval{ci->at(0).get<double>(), ci->at(1).get<double>()};
    controls.push_back(control);
  } else if (kind == "warn") {
    warnings.push_back({text_at(line, "code"), text_at(line, "text"), text_at(line, "only")});
  } else if (kind == "end") {
    complete = complete && line.value("complete", false);
  }
}

void read_results(const std::string& path, Results& results) {
  std::ifstream file(path);
  if (!file) throw InvalidArgument(fmt::format("cannot read {}", path));
  std::string text;
  bool ended = false;
  for (int number = 1; std::getline(file, text); ++number) {
    const bool last = file.peek() == std::ifstream::traits_type::eof();
    try {
      const Json line = Json::parse(text);
      results.add(line);
      ended = ended || line.at("t") == "end";
    } catch (const nlohmann::json::exception&) {
      if (last && number > 1) break;  // of a run that was killed
      throw InvalidArgument(
          fmt::format("{}:{}: this line is no record of a run: give a file that c10d-bench run or "
                      "compare wrote by --json",
                      path, number));
    }
  }
  if (file.bad()) throw InvalidArgument(fmt::format("cannot read {}", path));
  if (!ended) results.complete = false;
}

}  // namespace c10d::bench
