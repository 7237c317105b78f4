// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/json.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxValues = 4'000'000;
constexpr auto kNames = std::to_array<std::string_view>(
    {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL",
     "C64", "C128", "F8_E4M3", "F8_E5M2"});
static_assert(kNames.size() == kDTypeCount);

// Looks at the text before anything is built of it.
class Guard final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string why;
  std::size_t position = 0;

  bool null() override { return refuse("null is not allowed"); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse(fmt::format("{} is not a 64-bit integer", text.substr(0, 40)));
  }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return refuse("binary values"); }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      return refuse(fmt::format("the key {} occurs twice", name.substr(0, 80)));
    return value();
  }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position = at == 0 ? 0 : at - 1;
    return refuse(fmt::format("byte {} is not JSON: {}", position, error.what()));
  }

 private:
  bool refuse(std::string text) {
    why = std::move(text);
    return false;
  }
  bool value() { return ++values_ <= kMaxValues || refuse("more than four million values"); }
  bool open() {
    keys_.emplace_back();
    return keys_.size() <= kMaxDepth ? value() : refuse("more than 8 levels");
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;
  std::size_t values_ = 0;
};

}  // namespace

nlohmann::json parse_strict(std::string_view text, const std::string& file, std::uint64_t base) {
  Guard guard;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &guard))
    refuse_file(file, base + guard.position, "{}", guard.why);
  return nlohmann::json::parse(text.begin(), text.end());
}

JsonObject::JsonObject(const nlohmann::json& object, const std::string& file)
    : object_(object), file_(file) {
  if (!object.is_object()) refuse("an object was expected");
}

const nlohmann::json& JsonObject::at(const char* key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) refuse("\"{}\" is missing", key);
  return *found;
}

std::uint64_t JsonObject::number(const char* key, std::uint64_t limit) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > limit)
    refuse("\"{}\" is not an integer from 0 to {}", key, limit);
  return value.get<std::uint64_t>();
}

const nlohmann::json& JsonObject::at(const char* key, Type type) const {
  const nlohmann::json& value = at(key);
  if (value.type() != type)
    refuse("\"{}\" is not of type {}", key, nlohmann::json(type).type_name());
  return value;
}

const std::string& JsonObject::string(const char* key) const {
  return at(key, Type::string).get_ref<const std::string&>();
}

ParamSpec JsonObject::spec() const {
  ParamSpec spec{
      .name = string("name"), .shape = {}, .dtype = dtype_of_name(string("dtype"), file_)};
  for (const nlohmann::json& extent : array("shape")) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX)
      refuse("tensor {}: an extent is not an integer from 0 on", spec.name);
    spec.shape.push_back(extent.get<std::int64_t>());
  }
  try {
    check_list(file_, {&spec, 1});
  } catch (const InvalidArgument& error) {
    refuse("{}", error.what());
  }
  return spec;
}

std::string_view dtype_name(DType dtype) noexcept {
  return kNames[static_cast<std::size_t>(dtype)];
}

DType dtype_of_name(const std::string& name, const std::string& file) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end())
    refuse_file(file, 0, "{} is not a dtype of this version", name.substr(0, 40));
  return static_cast<DType>(found - kNames.begin());
}

nlohmann::ordered_json to_json(const ParamSpec& spec) {
  return {{"name", spec.name}, {"dtype", dtype_name(spec.dtype)}, {"shape", spec.shape}};
}

}}}  // namespace c10d::v0::parallel
