// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace c10d { inline namespace v0 {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kWidth = 100;

// `text` in lines that start in column `indent`, the first one being there already.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (column > indent && column + 1 + word.size() > kWidth) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
  }
  return result;
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (value.is_array() && value.empty()) return "-";
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " ") + value_text(item);
  return text;
}

// 268435456 as "256 MiB" where that is exact.
std::string bytes_text(const Json& value) {
  if (!value.is_number()) return value_text(value);
  auto bytes = value.get<std::uint64_t>();
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >= 1024 && (bytes % 1024 == 0 || bytes >= 1u << 20))
    bytes /= 1024, ++unit;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string shortened(const std::string& text, std::size_t columns) {
  return text.size() <= columns ? text : text.substr(0, columns - 3) + "...";
}

std::string pairs_text(const Json& facts) {
  std::string text;
  for (const auto& [name, value] : facts.items()) {
    std::string label = name;
    const bool is_bytes = label.ends_with("_bytes");
    if (is_bytes) label.resize(label.size() - 6);
    std::replace(label.begin(), label.end(), '_', ' ');
    text += fmt::format("  {:<28}{}\n", label,
                        wrapped(is_bytes ? bytes_text(value) : value_text(value), 30));
  }
  return text;
}

std::string backends_text(const Json& backends) {
  std::string text;
  for (const Json& backend : backends) {
    const bool available = backend["available"];
    std::string facts = available ? value_text(backend["version"]) : value_text(backend["reason"]);
    const std::string path = value_text(backend["path"]);
    if (available) facts += path.empty() ? "  (built in)" : "  (" + path + ")";
    text += fmt::format("  {:<10}{:<13}{}\n", value_text(backend["name"]),
                        available ? "available" : "unavailable", wrapped(facts, 25));
    if (const std::string note = value_text(backend["note"]); !note.empty())
      text += fmt::format("{:<25}{}\n", "", wrapped(note, 25));
  }
  return text;
}

std::string gpus_text(const Json& gpus) {
  std::string text = fmt::format("  {:<28}{}, CUDA {}\n", "driver", value_text(gpus["driver"]),
                                 value_text(gpus["cuda"]));
  if (gpus["devices"].empty())
    text += fmt::format("  {:<28}{}\n", "no GPU", wrapped(value_text(gpus["why_none"]), 30));
  for (const Json& gpu : gpus["devices"]) {
    const bool lost = gpu.contains("error");
    const std::string facts =
        lost ? value_text(gpu["error"])
             : fmt::format("{}, {}, {}, {} multiprocessors, compute capability {}, {}",
                           value_text(gpu["name"]), value_text(gpu["uuid"]),
                           bytes_text(gpu["memory_bytes"]), value_text(gpu["multiprocessors"]),
                           value_text(gpu["compute_capability"]), value_text(gpu["pci_bus_id"]));
    text += fmt::format("  {:<28}{}\n", "cuda:" + value_text(gpu["device"]), wrapped(facts, 30));
  }
  return text;
}

// What a backend says about one op, in a form in which equal ops can be found.
struct OpTable {
  std::vector<std::string> rows;  // one per reduce op, or a single one; a cell per dtype
  std::vector<std::string> notes;
  bool any = false;
  bool operator==(const OpTable& other) const { return rows == other.rows && notes == other.notes; }
};

// Of the column of a dtype.
std::size_t width_of(std::string_view dtype) { return std::max<std::size_t>(5, dtype.size() + 1); }

void add_cell(OpTable& table, std::string& row, std::string_view dtype, const Json& support) {
  const auto note = [&](const std::string& text) {
    if (std::find(table.notes.begin(), table.notes.end(), text) == table.notes.end())
      table.notes.push_back(text);
  };
  const bool ok = support["ok"];
  table.any = table.any || ok;
  const char* mark = ok ? "yes" : "-";
  if (ok && support.contains("composed")) {
    mark = "comp";
    note("comp: " + value_text(support["composed"]));
  }
  if (!ok) note("-: " + value_text(support["reason"]));
  row += fmt::format("{:>{}}", mark, width_of(dtype));
}

OpTable op_table(const Json& op) {
  OpTable table;
  const Json& first = op.front();
  if (first.contains("ok")) {
    std::string row = fmt::format(" {:<10}", "");
    for (const auto& [dtype, support] : op.items()) add_cell(table, row, dtype, support);
    table.rows.push_back(row);
    return table;
  }
  for (const auto& item : first.items()) {
    std::string row = fmt::format(" {:<10}", item.key());
    for (const auto& [dtype, by_kind] : op.items())
      add_cell(table, row, dtype, by_kind[item.key()]);
    table.rows.push_back(row);
  }
  return table;
}

std::string device_text(const std::string& title, const Json& ops) {
  std::vector<std::pair<std::vector<std::string>, OpTable>> groups;
  bool any = false;
  for (const auto& [name, op] : ops.items()) {
    OpTable table = op_table(op);
    any = any || table.any;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.second == table; });
    if (same != groups.end()) {
      same->first.push_back(name);
    } else {
      groups.emplace_back(std::vector<std::string>{name}, std::move(table));
    }
  }
  if (!any) return "";
  std::string text = title + "\n";
  std::string header = fmt::format(" {:<10}", "");
  for (const auto& item : ops.front().items())
    header += fmt::format("{:>{}}", item.key(), width_of(item.key()));
  for (const auto& [names, table] : groups) {
    text += "  " + wrapped(fmt::format("{}", fmt::join(names, " ")), 2) + "\n" + header + "\n";
    for (const std::string& row : table.rows) text += row + "\n";
    for (const std::string& note : table.notes) text += "    " + wrapped(note, 6) + "\n";
  }
  return text;
}

std::string capabilities_text(const Json& capabilities) {
  std::string text;
  for (const auto& [backend, devices] : capabilities.items())
    for (const auto& [device, ops] : devices.items())
      text += device_text(fmt::format("  {} on {}", backend, device), ops);
  return text;
}

std::string environment_text(const Json& environment) {
  std::string text = fmt::format("  {:<30}{:<18}{:<13}{}\n", "name", "value", "source", "meaning");
  for (const Json& variable : environment) {
    const std::string value = shortened(value_text(variable["value"]), kWidth - 32);
    text += fmt::format("  {:<30}{:<18}", value_text(variable["name"]), value);
    if (value.size() >= 18) text += fmt::format("\n{:<50}", "");
    text += fmt::format("{:<13}{}\n", value_text(variable["source"]),
                        wrapped(value_text(variable["help"]), 63));
  }
  return text;
}

}  // namespace

std::string section_text(std::string_view section, const Json& facts) {
  const Json& of_section = facts.at(std::string(section));
  if (section == "gpus") return gpus_text(of_section);
  if (section == "backends") return backends_text(of_section);
  if (section == "capabilities") return capabilities_text(of_section);
  if (section == "environment") return environment_text(of_section);
  return pairs_text(of_section);
}

std::string overview_text(const Json& facts) {
  const auto line = [](std::string_view label, const std::string& text) {
    return fmt::format("{:<11}{}\n", label, wrapped(text, 11));
  };
  const auto of = [&](const char* section, const char* name) {
    return value_text(facts.at(section).at(name));
  };
  std::string text = line("c10d", of("version", "library"));
  text += line(
      "host", fmt::format("{}: {} of {} CPUs, {}, {} NUMA node(s), {}, {}", of("host", "name"),
                          of("host", "cpus_allowed"), of("host", "cpus_online"), of("host", "cpu"),
                          of("host", "numa_nodes"), bytes_text(facts.at("host").at("memory_bytes")),
                          of("host", "kernel")));
  const Json& gpus = facts.at("gpus");
  const Json& devices = gpus.at("devices");
  text +=
      line("GPUs",
           devices.empty()
               ? "none: " + value_text(gpus.at("why_none"))
               : fmt::format("{}, CUDA {}: {}", devices.size(), value_text(gpus.at("cuda")),
                             value_text(devices[0].value("name", devices[0].value("error", "")))));
  const Json& launch = facts.at("launch");
  text += line("launcher", launch.contains("error")
                               ? value_text(launch["error"])
                               : fmt::format("{}, rank {} of {}", of("launch", "launcher"),
                                             of("launch", "rank"), of("launch", "size")));
  text += "\n";
  for (const Json& backend : facts.at("backends")) {
    const std::string note = value_text(backend["note"]);
    text += line(value_text(backend["name"]),
                 backend["available"]
                     ? value_text(backend["version"]) + (note.empty() ? "" : "; " + note)
                     : "unavailable: " + value_text(backend["reason"]));
  }
  bool any = false;
  for (const Json& variable : facts.at("environment")) {
    const bool set = variable["source"] != "default" && variable["source"] != "unset";
    if (!set || !value_text(variable["name"]).starts_with("C10D_")) continue;
    text += fmt::format("{}{}={}\n", any ? "" : "\n", value_text(variable["name"]),
                        shortened(value_text(variable["value"]), kWidth - 40));
    any = true;
  }
  return text +
         "\nMore: c10d-info capabilities (ops and dtypes of each backend), gpus, limits, native, "
         "--env\n(every variable), --all, --json.\n";
}

std::string short_environment_text(const Json& environment) {
  Json shown = Json::array();
  for (const Json& variable : environment) {
    const bool ours = value_text(variable["name"]).starts_with("C10D_");
    if (ours || variable["source"] == "environment") shown.push_back(variable);
  }
  return environment_text(shown) +
         fmt::format("  {} more, unset: c10d-info --env\n", environment.size() - shown.size());
}

}}  // namespace c10d::v0
