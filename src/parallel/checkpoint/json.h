// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/parallel/checkpoint/file_system.h"

namespace c10d { inline namespace v0 { namespace parallel {

// As the safetensors format has it.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// JSON of a file that somebody else may have written: UTF-8, no key twice, at most 8 levels and
// four million values, and no number but integers of 64 bits. Throws CheckpointError that names
// `file`, with offsets that count from `base`.
nlohmann::json parse_strict(std::string_view text, const std::string& file, std::uint64_t base = 0);

// Members of an object; a missing one, another type, or a number out of range is CheckpointError
// that names `file` and the key.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& object, const std::string& file);
  using Type = nlohmann::json::value_t;
  const nlohmann::json& at(const char* key) const;
  const nlohmann::json& at(const char* key, Type type) const;
  std::uint64_t number(const char* key, std::uint64_t limit = UINT64_MAX) const;
  const std::string& string(const char* key) const;
  const nlohmann::json& array(const char* key) const { return at(key, Type::array); }
  const nlohmann::json& object(const char* key) const { return at(key, Type::object); }
  // Of "name", "dtype" and "shape", checked.
  ParamSpec spec() const;
  template <class... Values>
  [[noreturn]] void refuse(fmt::format_string<Values...> what, Values&&... values) const {
    refuse_file(file_, 0, what, std::forward<Values>(values)...);
  }

 private:
  const nlohmann::json& object_;
  const std::string& file_;
};

// Of safetensors: "F32".
std::string_view dtype_name(DType dtype) noexcept;
DType dtype_of_name(const std::string& name, const std::string& file);
nlohmann::ordered_json to_json(const ParamSpec& spec);

}}}  // namespace c10d::v0::parallel
