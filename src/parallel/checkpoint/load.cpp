// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "c10d/parallel/checkpoint.h"
#include "src/parallel/checkpoint/agreement.h"
#include "src/parallel/checkpoint/files.h"
#include "src/parallel/checkpoint/plan.h"
#include "src/parallel/common/parameters.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

constexpr std::size_t kMaxNamesInText = 10;

const ManifestTensor* find_tensor(const Manifest& manifest, const std::string& name) {
  const auto found =
      std::partition_point(manifest.tensors.begin(), manifest.tensors.end(),
                           [&](const ManifestTensor& tensor) { return tensor.spec.name < name; });
  return found != manifest.tensors.end() && found->spec.name == name ? &*found : nullptr;
}

std::string names_text(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamesInText);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

// The same on every rank: it knows what all of them want.
LoadResult compare_keys(const Manifest& manifest, const std::vector<nlohmann::json>& ranks,
                        const std::string& path, bool strict) {
  const std::string file = path + "/" + kManifestName;
  LoadResult result;
  std::set<std::string> wanted, missing;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const DescribedPart& part : parse_parts(ranks[rank].at("parts"))) {
      wanted.insert(part.spec.name);
      const ManifestTensor* tensor = find_tensor(manifest, part.spec.name);
      if (!tensor)
        missing.insert(part.spec.name);
      else if (tensor->spec != part.spec)
        throw CheckpointError(
            {.message = fmt::format("{} is {} on rank {} and {} in {}", part.spec.name,
                                    to_text(part.spec), rank, to_text(tensor->spec), file),
             .rank = static_cast<int>(rank),
             .file = file});
    }
  }
  result.missing.assign(missing.begin(), missing.end());
  for (const ManifestTensor& tensor : manifest.tensors)
    if (!wanted.contains(tensor.spec.name)) result.unexpected.push_back(tensor.spec.name);
  if (strict && !(result.missing.empty() && result.unexpected.empty())) {
    std::string text = fmt::format("{} and this program differ;", file);
    if (!result.missing.empty())
      text += fmt::format(" not in the checkpoint: {};", names_text(result.missing));
    if (!result.unexpected.empty())
      text += fmt::format(" in the checkpoint only: {};", names_text(result.unexpected));
    throw CheckpointError({.message = text + " strict = false loads the rest", .file = file});
  }
  return result;
}

}  // namespace

std::optional<LoadResult> load(const ProcessGroup& group, const std::string& directory,
                               Snapshot& snapshot, LoadOptions options) {
  const std::string phase =
      fmt::format("load of {}, {}", options.name.empty() ? "the latest" : options.name,
                  options.strict ? "strict" : "lenient");
  const auto ranks = agree(group, phase, [&] {
    nlohmann::json mine = {{"parts", describe_parts(snapshot.parts)}};
    if (group.rank() != 0) return mine;
    // One rank looks, so that all load the same one.
    if (const auto name = find_checkpoint(directory, options.name)) {
      mine["name"] = *name;
      const std::string file = directory + "/" + *name + "/" + kManifestName;
      const std::string text = InputFile(file).text(kMaxManifestBytes);
      parse_manifest(text, file);  // before it travels: what is torn need not be text
      mine["manifest"] = text;
      mine["path"] = directory + "/" + *name;
    }
    return mine;
  });
  if (!ranks[0].contains("name")) return std::nullopt;
  const std::string name = ranks[0].at("name"), path = ranks[0].at("path");
  const Manifest manifest = parse_manifest(ranks[0].at("manifest").get_ref<const std::string&>(),
                                           path + "/" + kManifestName);
  LoadResult result = compare_keys(manifest, ranks, path, options.strict);
  result.name = name;

  agree(group, fmt::format("end of the {}", phase), [&]() -> nlohmann::json {
    PieceReader reader(directory + "/" + name, manifest);
    for (const TensorPart& part : snapshot.parts)
      if (const ManifestTensor* tensor = find_tensor(manifest, part.spec.name))
        reader.read(*tensor, part.offset, part.data);
    return true;
  });
  copy_state(manifest, snapshot);
  return result;
}

}}}  // namespace c10d::v0::parallel
