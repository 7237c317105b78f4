// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace c10d::bench {

// As much of JSON Schema as bench/schema uses: $defs by kind, required, properties, type, enum,
// const.
class Schema {
 public:
  explicit Schema(const std::string& path) {
    std::ifstream file(path);
    schema_ = nlohmann::ordered_json::parse(file);
  }
  // Why `line` is no record of the schema; empty when it is one.
  std::string complaint(const nlohmann::ordered_json& line) const {
    if (!line.is_object() || !line.contains("t") || !line["t"].is_string()) return "no kind";
    const std::string kind = line["t"].get<std::string>();
    if (!schema_["$defs"].contains(kind)) return "unknown kind " + kind;
    return check(schema_["$defs"][kind], line, kind);
  }

 private:
  using Json = nlohmann::ordered_json;

  static bool is(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
  }
  static std::string check(const Json& schema, const Json& value, const std::string& where) {
    if (schema.contains("const") && schema["const"] != value)
      return where + " is not " + schema["const"].dump();
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return where + " is none of " + schema["enum"].dump();
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      bool fits = false;
      for (const Json& type : types) fits = fits || is(type.get<std::string>(), value);
      if (!fits) return where + " is no " + types.dump() + ": " + value.dump();
    }
    if (!value.is_object()) return "";
    if (schema.contains("required"))
      for (const Json& name : schema["required"])
        if (!value.contains(name.get<std::string>()))
          return where + " lacks " + name.get<std::string>();
    if (schema.contains("properties"))
      for (const auto& [name, sub] : schema["properties"].items())
        if (value.contains(name))
          if (std::string why = check(sub, value[name], where + "." + name); !why.empty())
            return why;
    return "";
  }
  Json schema_;
};

}  // namespace c10d::bench
