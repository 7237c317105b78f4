// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "src/parallel/checkpoint/file_system.h"
#include "src/parallel/checkpoint/json.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

std::uint64_t header_length(std::string_view start, std::uint64_t file_bytes,
                            const std::string& file) {
  if (start.size() < kLengthBytes || file_bytes < kLengthBytes)
    refuse_file(file, file_bytes, "ends inside the length of its header");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length > kMaxHeaderBytes)
    refuse_file(file, 0, "has a header of {} bytes, limit {}", length, kMaxHeaderBytes);
  if (length > file_bytes - kLengthBytes)
    refuse_file(file, file_bytes, "ends inside its header of {} bytes", length);
  return length;
}

SafetensorsEntry parse_entry(const std::string& name, const nlohmann::json& value,
                             std::uint64_t header_bytes, const std::string& file) {
  nlohmann::json with_name = value;
  if (value.is_object()) with_name["name"] = name;
  const JsonObject object(with_name, file);
  SafetensorsEntry entry{.spec = object.spec()};
  const nlohmann::json& offsets = object.array("data_offsets");
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    object.refuse("tensor {}: data_offsets are not two integers from 0 on", name);
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (end < begin || end - begin != entry.spec.bytes() || begin > UINT64_MAX - header_bytes)
    object.refuse("tensor {}: bytes {} to {}, but its shape takes {}", name, begin, end,
                  entry.spec.bytes());
  entry.begin = begin + header_bytes;
  return entry;
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view start, std::uint64_t file_bytes,
                                    const std::string& file) {
  const std::uint64_t length = header_length(start, file_bytes, file);
  if (start.size() < kLengthBytes + length) refuse_file(file, start.size(), "ends in its header");
  const std::string_view text = start.substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{')
    refuse_file(file, kLengthBytes, "does not begin with {{");

  SafetensorsHeader header;
  header.bytes = kLengthBytes + length;
  const nlohmann::json json = parse_strict(text, file, kLengthBytes);
  for (const auto& [name, value] : json.items()) {
    if (name != kMetadata) {
      header.entries.push_back(parse_entry(name, value, header.bytes, file));
      continue;
    }
    if (!value.is_object()) refuse_file(file, 0, "__metadata__ is not an object");
    for (const auto& [key, text_value] : value.items()) {
      if (!text_value.is_string()) refuse_file(file, 0, "metadata {} is not a string", key);
      header.metadata[key] = text_value.get<std::string>();
    }
  }

  std::ranges::sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.spec.bytes());
  });
  std::uint64_t at = header.bytes;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at)
      refuse_file(file, at, "tensor {} begins at byte {}, but the one before ends at {}",
                  entry.spec.name, entry.begin, at);
    if (entry.spec.bytes() > file_bytes - at)
      refuse_file(file, file_bytes, "ends inside tensor {}", entry.spec.name);
    at += entry.spec.bytes();
  }
  if (at != file_bytes)
    refuse_file(file, at, "has {} bytes after its last tensor", file_bytes - at);
  return header;
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  const InputFile file(path);
  std::string start(std::min(file.bytes(), kLengthBytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  start.resize(kLengthBytes + header_length(start, file.bytes(), path));
  file.read(0, std::as_writable_bytes(std::span(start)));
  return parse_safetensors(start, file.bytes(), path);
}

std::string make_safetensors_header(const std::vector<ParamSpec>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::unordered_set<std::string_view> names = {kMetadata};
  if (!metadata.empty()) json[kMetadata] = metadata;
  // push_back of a pair, for operator[] of an ordered object searches all that is there.
  std::uint64_t at = 0;
  for (const ParamSpec& spec : tensors) {
    if (!names.insert(spec.name).second) refuse_checkpoint("two tensors are named {}", spec.name);
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        spec.name, nlohmann::ordered_json{{"dtype", dtype_name(spec.dtype)},
                                          {"shape", spec.shape},
                                          {"data_offsets", {at, at + spec.bytes()}}});
    at += spec.bytes();
  }
  std::string text = json.dump();
  text.append(
      (kTensorAlignment - (kLengthBytes + text.size()) % kTensorAlignment) % kTensorAlignment, ' ');
  if (text.size() > kMaxHeaderBytes)
    refuse_checkpoint("a header of {} bytes, limit {}: fewer tensors or shorter names", text.size(),
                      kMaxHeaderBytes);
  std::string start;
  for (std::uint64_t rest = text.size(), i = 0; i < kLengthBytes; ++i, rest >>= 8)
    start.push_back(static_cast<char>(rest & 0xff));
  return start + text;
}

}}}  // namespace c10d::v0::parallel
