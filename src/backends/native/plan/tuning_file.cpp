// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/native/plan/tuning_file.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "c10d/capability.h"
#include "c10d/env.h"
#include "src/base/hash.h"
#include "src/base/host.h"

namespace c10d { inline namespace v0 { namespace native {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 3;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kMostPoints = 64;

bool are_points(const std::vector<double>& values) {
  return !values.empty() && values.size() <= kMostPoints &&
         std::ranges::all_of(values, [](double value) { return value > 0 && value <= 1e15; });
}

std::string text_of(const Json& row, const char* name) {
  const auto value = row.find(name);
  return value != row.end() && value->is_string() ? value->get<std::string>() : std::string();
}

bool read_curve(const Json& row, Curve& curve) try {
  const auto op = row.at("op").get<std::string>(), choice = row.at("choice").get<std::string>();
  while (curve.op < kPlannedOps && to_string(planned_op(curve.op)) != op) ++curve.op;
  while (curve.choice < choices().size() && name_of(choices()[curve.choice]) != choice)
    ++curve.choice;
  row.at("half").get_to(curve.half);
  row.at("registered").get_to(curve.registered);
  row.at("bytes").get_to(curve.bytes);
  row.at("us").get_to(curve.us);
  return curve.op < kPlannedOps && curve.choice < choices().size() && are_points(curve.bytes) &&
         are_points(curve.us) && curve.bytes.size() == curve.us.size() &&
         std::is_sorted(curve.bytes.begin(), curve.bytes.end(), std::less_equal<>());
} catch (const Json::exception&) {  // a field is missing, or of another type
  return false;
}

}  // namespace

std::string fingerprint(const TeamProfile& host, const RoundTrips& trips) {
  utsname kernel{};
  ::uname(&kernel);
  const std::string release = kernel.release;
  return fmt::format("{} | {} CPUs | {} ranks{} | {} | cma {} | Linux {} | c10d {} schema {}",
                     cpu_model(), host.cpus, host.ranks,
                     host.oversubscribed ? " oversubscribed" : "", distances(trips, host.far),
                     host.cma ? "yes" : "no", release.substr(0, release.find('.')), kVersion,
                     kSchema);
}

std::string tuning_path(std::string_view fingerprint) {
  const auto cache = env("XDG_CACHE_HOME");
  const auto home = env("HOME");
  if (!cache && !home) return {};
  return fmt::format("{}/c10d/tune/{:016x}.json", cache ? *cache : *home + "/.cache",
                     fnv1a(fingerprint));
}

std::vector<Curve> parse_tuning(std::string_view json, std::string_view fingerprint,
                                std::vector<std::string>& warnings) {
  const auto refuse = [&](std::string_view why) {
    warnings.push_back(fmt::format("the tuning is not used: {}; run c10d-bench tune again", why));
    return std::vector<Curve>();
  };
  if (json.size() > kMostBytes) return refuse("it is longer than 1 MiB");
  // Depth first: the parser recurses.
  int depth = 0;
  for (const char c : json) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 8) return refuse("it is nested too deeply");
  }
  const Json file = Json::parse(json, nullptr, false);
  if (!file.is_object()) return refuse("it is no JSON object");
  if (text_of(file, "fingerprint") != fingerprint)
    return refuse("it was made on another host or with another version");
  const auto rows = file.find("curves");
  if (rows == file.end() || !rows->is_array()) return refuse("it has no curves");
  std::vector<Curve> curves;
  for (const Json& row : *rows) {
    Curve curve;
    if (!read_curve(row, curve)) return refuse("a curve in it is invalid");
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::vector<Curve> load_tuning(const std::string& path, std::string_view fingerprint,
                               std::vector<std::string>& warnings) {
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const std::size_t before = warnings.size();
  auto curves = parse_tuning(text, fingerprint, warnings);
  for (std::size_t i = before; i < warnings.size(); ++i) warnings[i] = path + ": " + warnings[i];
  return curves;
}

PlanReport report_plan(const Plan& plan, const CostModel& costs, const RoundTrips& trips,
                       const PlanQuery& query) {
  PlanReport report;
  report.fingerprint = fingerprint(costs.host(), trips);
  report.path = tuning_path(report.fingerprint);
  PlanKey key = plan_key(query.op, query.dtype, query.bytes);
  key.registered = query.registered;
  if (planned_index(query.op) >= kPlannedOps) return report;
  report.bound_us = bound_us(key, costs.host());
  for (std::size_t i = 0; i < choices().size(); ++i)
    if (applies(choices()[i], key, costs.host()))
      report.options.push_back(
          {name_of(choices()[i]), costs.us(i, key), costs.is_measured(i, key)});
  const std::string taken = name_of(plan.find(key));
  std::stable_sort(report.options.begin(), report.options.end(),
                   [&](const PlanOption& a, const PlanOption& b) {
                     if ((a.name == taken) != (b.name == taken)) return a.name == taken;
                     return a.us < b.us;
                   });
  return report;
}

}}}  // namespace c10d::v0::native
