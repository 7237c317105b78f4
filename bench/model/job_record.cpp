// SPDX-License-Identifier: BSD-3-Clause
#include "bench/model/job_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "bench/model/cases.h"
#include "bench/model/record.h"
#include "c10d/error.h"
#include "c10d/op_traits.h"

namespace c10d::bench {
namespace {

constexpr int kDeepest = 8;  // objects and arrays inside each other, and one to spare
constexpr std::size_t kLongestText = 256;
constexpr double kLongest = 1e10;  // seconds: no clock says more

// Reads the fields of one object, and says which of them is wrong and where.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("{}: {}", where_, what));
  }
  const Json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(fmt::format("lacks {}", name));
    return *found;
  }
  bool has(const char* name) const { return object_.contains(name); }
  const Json& list(const char* name, std::size_t most) const {
    const Json& value = at(name);
    if (!value.is_array()) fail(fmt::format("{} is no list", name));
    if (value.size() > most)
      fail(fmt::format("{} has {} entries; {} are read at most", name, value.size(), most));
    return value;
  }
  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail(fmt::format("{} is no text", name));
    auto text = value.get<std::string>();
    if (text.size() > kLongestText)
      fail(fmt::format("{} has {} bytes; {} are read at most", name, text.size(), kLongestText));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return text;
  }
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) const {
    const Json& value = at(name);
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) &&
                      value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
    if (!fits) fail(fmt::format("{} is {}, not from {} to {}", name, shown(value), low, high));
    return value.get<std::int64_t>();
  }
  double seconds(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number() || !(std::abs(value.get<double>()) < kLongest))
      fail(fmt::format("{} is {}, no number of seconds", name, shown(value)));
    return value.get<double>();
  }
  // What `parse` makes of a name.
  template <class Parse>
  auto named(const char* name, Parse parse) const {
    const std::string value = text(name);
    try {
      return parse(value);
    } catch (const InvalidArgument& error) {
      fail(fmt::format("{}: {}", name, error.what()));
    }
  }

 private:
  static std::string shown(const Json& value) {
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() <= 40 ? text : text.substr(0, 40) + "...";
  }
  const Json& object_;
  std::string where_;
};

RecordedOp read_op(const Fields& fields, double clock) {
  RecordedOp op;
  op.sequence = static_cast<std::uint64_t>(fields.integer("sequence", 0, INT64_MAX));
  op.kind = fields.named("op", op_from_string);
  op.dtype = fields.named("dtype", dtype_from_string);
  if (is_reduction(op.kind)) op.redop = fields.named("reduce_op", reduce_op_from_string);
  op.count = static_cast<std::uint64_t>(
      fields.integer("count", 0, static_cast<std::int64_t>(kLargestSize)));
  op.root = static_cast<int>(fields.integer("root", INT32_MIN, kMostRecordRanks));
  if (is_point_to_point(op.kind)) {
    op.tag = static_cast<std::uint32_t>(fields.integer("tag", 0, UINT32_MAX));
    op.message = static_cast<std::uint64_t>(fields.integer("message", 0, INT64_MAX));
  }
  op.start = clock - fields.seconds("started_s_ago");
  if (fields.has("ready_s_ago") && !fields.at("ready_s_ago").is_null())
    op.ready = std::min(op.start, clock - fields.seconds("ready_s_ago"));
  op.ok = fields.text("state") == "ok";
  if (!op.ok) return op;
  op.end = clock - fields.seconds("ended_s_ago");
  if (op.end < op.start) fields.fail("ended before it started");
  return op;
}

RecordedRank read_rank(const Fields& fields, int size, double clock, const std::string& where,
                       std::size_t& budget) {
  RecordedRank rank;
  rank.rank = static_cast<int>(fields.integer("rank", 0, size - 1));
  rank.pid = fields.integer("pid", 0, INT32_MAX);
  rank.host = fields.text("host");
  for (const Json& op : fields.list("ops", budget)) {
    rank.ops.push_back(read_op(
        Fields(op, fmt::format("{}, rank {}, op {}", where, rank.rank, rank.ops.size() + 1)),
        clock));
  }
  budget -= rank.ops.size();
  return rank;
}

RecordedGroup read_group(const Json& json, double clock, std::string where, std::size_t& budget) {
  const Fields fields(json, where);
  RecordedGroup group;
  group.name = fields.text("group");
  where = fmt::format("{} \"{}\"", where, group.name);
  group.size = static_cast<int>(fields.integer("size", 1, kMostRecordRanks));
  for (const Json& rank : fields.list("ranks", static_cast<std::size_t>(group.size))) {
    RecordedRank read = read_rank(Fields(rank, where), group.size, clock, where, budget);
    if (!group.ranks.empty() && group.ranks.back().rank >= read.rank)
      fields.fail(fmt::format("rank {} stands behind rank {}", read.rank, group.ranks.back().rank));
    group.ranks.push_back(std::move(read));
  }
  return group;
}

// Bounded in depth while it is read, and by the length of the text in the number of values.
Json parse_json(std::string_view text, std::string_view where) {
  const auto check = [where](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest)
      throw InvalidArgument(fmt::format("{}: is no record: too many brackets", where));
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(fmt::format(
        "{}: is no record, or one that is cut: {}; give a file of C10D_RECORD_DIR, or the output "
        "of c10d-info --pid PID --json --last 1024",
        where, error.what()));
  }
}

bool is_same_group(const RecordedGroup& a, const RecordedGroup& b) {
  return a.name == b.name && a.size == b.size;
}

bool is_newer(const RecordedRank& a, const RecordedRank& b) {
  const auto last = [](const RecordedRank& rank) {
    return rank.ops.empty() ? 0 : rank.ops.back().start;
  };
  return last(a) > last(b);
}

void merge_group(RecordedGroup& into, RecordedGroup from, std::string_view where) {
  for (RecordedRank& rank : from.ranks) {
    const auto place =
        std::lower_bound(into.ranks.begin(), into.ranks.end(), rank.rank,
                         [](const RecordedRank& one, int number) { return one.rank < number; });
    if (place == into.ranks.end() || place->rank != rank.rank) {
      into.ranks.insert(place, std::move(rank));
      continue;
    }
    if (place->pid != rank.pid || place->host != rank.host)
      throw InvalidArgument(fmt::format(
          "{}: rank {} of group \"{}\" is process {} on {} here, and process {} on {} in another "
          "file: these are records of several jobs; give the files of one",
          where, rank.rank, into.name, rank.pid, rank.host, place->pid, place->host));
    if (is_newer(rank, *place)) *place = std::move(rank);
  }
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text, chunk(std::size_t{1} << 16, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), file.gcount() > 0) {
    text.append(chunk, 0, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMostRecordBytes)
      throw InvalidArgument(fmt::format("{}: more than {} bytes, which no record has",
                                        path.string(), kMostRecordBytes));
  }
  if (!file.is_open() || file.bad())
    throw InvalidArgument(fmt::format("{}: cannot be read", path.string()));
  return text;
}

std::vector<std::filesystem::path> record_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with("c10d-record-") || !name.ends_with(".json")) continue;
    if (files.size() == kMostRecordFiles)
      throw InvalidArgument(fmt::format("{}: more than {} files", folder, kMostRecordFiles));
    files.push_back(entry->path());
  }
  if (error) throw InvalidArgument(fmt::format("{}: {}", folder, error.message()));
  if (files.empty())
    throw InvalidArgument(fmt::format(
        "{}: no file c10d-record-*.json in it; ranks write them when a group fails, or at the "
        "signal that C10D_RECORD_SIGNAL names; a running job is read by its process id",
        folder));
  std::sort(files.begin(), files.end());
  return files;
}

Json json_of(const RecordedOp& op) {
  Json json = {{"sequence", op.sequence}, {"op", to_string(op.kind)}};
  json["dtype"] = to_string(op.dtype);
  json["reduce_op"] = is_reduction(op.kind) ? Json(to_string(op.redop)) : Json(nullptr);
  json["count"] = op.count;
  json["root"] = op.root;
  if (is_point_to_point(op.kind)) {
    json["tag"] = op.tag;
    json["message"] = op.message;
  }
  json["state"] = op.ok ? "ok" : "failed";
  json["ready_s_ago"] = op.ready ? Json(-*op.ready) : Json(nullptr);
  json["started_s_ago"] = -op.start;
  json["ended_s_ago"] = -op.end;
  return json;
}

}  // namespace

bool is_same_call(const RecordedOp& a, const RecordedOp& b) noexcept {
  return a.kind == b.kind && a.dtype == b.dtype && a.redop == b.redop && a.root == b.root &&
         (a.count == b.count || traits_of(a.kind).has_counts);
}

std::string text_of(const RecordedOp& op) {
  const OpTraits& traits = traits_of(op.kind);
  if (traits.required == OpBuffer::neither) return fmt::format("{}()", traits.name);
  std::string text = fmt::format("{}(", traits.name);
  if (traits.has_reduce_op) text += fmt::format("{}, ", to_string(op.redop));
  text += to_string(op.dtype);
  if (!traits.has_counts) text += fmt::format(" x {}", op.count);
  if (traits.has_root) text += fmt::format(", root {}", op.root);
  if (traits.is_point_to_point)
    text +=
        fmt::format(", {} {}, tag {}", op.kind == OpKind::send ? "to" : "from", op.root, op.tag);
  return text + ")";
}

JobRecord parse_job_record(std::string_view text, std::string_view where) {
  const Json json = parse_json(text, where);
  const Fields fields(json, std::string(where));
  if (!fields.has("c10d_record")) fields.fail("is no flight record: it lacks c10d_record");
  fields.integer("c10d_record", 1, 1);
  const double clock = fields.has("clock_s") ? fields.seconds("clock_s") : 0;
  JobRecord record;
  std::size_t budget = kMostRecordOps;
  for (const Json& group : fields.list("groups", kMostRecordOps)) {
    record.groups.push_back(read_group(
        group, clock, fmt::format("{}, group {}", where, record.groups.size() + 1), budget));
  }
  return record;
}

void merge(JobRecord& all, JobRecord more, std::string_view where) {
  for (RecordedGroup& group : more.groups) {
    const auto same = std::find_if(all.groups.begin(), all.groups.end(),
                                   [&](const auto& one) { return is_same_group(one, group); });
    if (same == all.groups.end())
      all.groups.push_back(std::move(group));
    else
      merge_group(*same, std::move(group), where);
  }
}

JobRecord read_job_record(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return parse_job_record(read_text(path), path);
  JobRecord record;
  for (const std::filesystem::path& file : record_files(path))
    merge(record, parse_job_record(read_text(file), file.string()), file.string());
  return record;
}

std::string to_text(const JobRecord& record) {
  Json groups = Json::array();
  for (const RecordedGroup& group : record.groups) {
    Json ranks = Json::array();
    for (const RecordedRank& rank : group.ranks) {
      Json ops = Json::array();
      for (const RecordedOp& op : rank.ops) ops.push_back(json_of(op));
      ranks.push_back(
          {{"rank", rank.rank}, {"host", rank.host}, {"pid", rank.pid}, {"ops", std::move(ops)}});
    }
    groups.push_back({{"group", group.name}, {"size", group.size}, {"ranks", std::move(ranks)}});
  }
  return Json{{"c10d_record", 1}, {"groups", std::move(groups)}}.dump();
}

}  // namespace c10d::bench
