// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include "kernels/copy.h"
#include "src/parallel/checkpoint/agreement.h"
#include "src/parallel/checkpoint/crc32c.h"
#include "src/parallel/checkpoint/files.h"
#include "src/parallel/checkpoint/safetensors.h"

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

nlohmann::json state_of(const Snapshot& snapshot) {
  return {{"epoch", snapshot.epoch},
          {"cursor", snapshot.cursor},
          {"strings", snapshot.strings},
          {"integers", snapshot.integers}};
}

void check_states(const std::vector<nlohmann::json>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    for (const auto& [key, value] : ranks[0].at("state").items())
      if (const nlohmann::json& other = ranks[rank].at("state").at(key); other != value)
        throw CheckpointError({.message = fmt::format("{} is {} on rank {} and {} on rank 0", key,
                                                      other.dump(), rank, value.dump()),
                               .rank = static_cast<int>(rank)});
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

void SaveJob::enter_folder() {
  if (disk_.make_directory(directory_)) {
    const std::string parent = std::filesystem::path(directory_ + "/.").parent_path().parent_path();
    disk_.sync_directory(parent.empty() ? "." : parent);
  }
  if (group_.rank() == 0 && !lock_) lock_ = FolderLock::take(directory_);
}

void SaveJob::lock() {
  agree(group_, "lock of the checkpoint folder", [&] {
    if (group_.rank() == 0) enter_folder();
    return nlohmann::json();
  });
}

// What ranks hold is the same at every checkpoint of most runs: only when it changed on some rank
// do they tell each other.
void SaveJob::plan(std::string_view phase, std::vector<DescribedPart> parts) {
  plan_.reset();
  std::vector<std::vector<DescribedPart>> all;
  for (const nlohmann::json& rank :
       agree(group_, fmt::format("plan of the {}", phase), [&] { return nlohmann::json(parts); }))
    all.push_back(parse_parts(rank));
  plan_ = make_save_plan(all);
  parts_ = std::move(parts);
}

void SaveJob::begin(const Snapshot& snapshot) {
  const std::string phase = fmt::format("save of step {}", snapshot.step);
  std::vector<DescribedPart> parts;
  const auto ranks = agree(group_, phase, [&] {
    parts = describe_parts(snapshot.parts);
    return nlohmann::json{{"id", random_id()},
                          {"state", state_of(snapshot)},
                          {"is_planned", plan_.has_value() && parts == parts_}};
  });
  check_states(ranks);
  if (!std::ranges::all_of(ranks, [](const auto& rank) { return rank.at("is_planned") == true; }))
    plan(phase, std::move(parts));

  error_ = nullptr;
  file_ = {};
  written_.clear();
  items_.clear();
  manifest_ = {};
  try {
    copy_state(snapshot, manifest_);
    temporary_ = fmt::format("{}/{}{}-{}", directory_, kTemporaryPrefix, snapshot.step,
                             ranks[0].at("id").get_ref<const std::string&>());
    lay_out(snapshot);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void SaveJob::lay_out(const Snapshot& snapshot) {
  manifest_.world_size = static_cast<std::uint64_t>(group_.size());
  for (const ParamSpec& spec : plan_->tensors) manifest_.tensors.push_back({spec, {}});
  for (const PlannedPiece& piece : plan_->pieces) {
    if (piece.rank != group_.rank()) continue;
    const ParamSpec& spec = plan_->tensors[piece.tensor];
    const TensorPart& part = snapshot.parts[piece.part];
    const std::size_t width = size_of(spec.dtype);
    Item item{piece.tensor, piece.offset, spec,
              part.data.subspan((piece.offset - part.offset) * width, piece.count * width)};
    if (piece.count < spec.count()) {
      item.spec.name += fmt::format("[{}:{}]", piece.offset, piece.offset + piece.count);
      item.spec.shape = {static_cast<std::int64_t>(piece.count)};
    }
    items_.push_back(std::move(item));
  }
  // Every tensor begins at a multiple of its element: there are no holes to align it.
  std::ranges::stable_sort(items_, std::greater(),
                           [](const Item& item) { return size_of(item.spec.dtype); });
}

void SaveJob::copy() noexcept try {
  if (error_) return;
  std::size_t bytes = 0;
  for (const Item& item : items_) bytes += item.data.size();
  if (bytes > copy_bytes_) {
    copy_.reset();  // not both at a time
    copy_bytes_ = 0;
    copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    copy_bytes_ = bytes;
  }
  std::byte* at = copy_.get();
  for (Item& item : items_) {
    // Past the caches: training needs what they hold, and the thread reads this much later.
    c10d::copy(at, item.data.data(), item.data.size(), StorePolicy::streaming);
    item.data = {at, item.data.size()};
    at += item.data.size();
  }
  stream_fence();
} catch (...) {
  error_ = std::current_exception();
}

void SaveJob::write() noexcept try {
  if (error_ || (items_.empty() && group_.rank() != 0)) return;
  enter_folder();
  disk_.make_directory(temporary_);
  if (items_.empty()) return;
  write_shard();
  disk_.sync_directory(temporary_);
} catch (...) {
  error_ = std::current_exception();
}

void SaveJob::write_shard() {
  std::vector<ParamSpec> specs;
  for (const Item& item : items_) specs.push_back(item.spec);
  const std::string header =
      make_safetensors_header(specs, {{"format", "c10d-checkpoint"}, {"version", "1"}});
  NewFile file(disk_, temporary_ + "/" + shard_name(group_.rank()));
  file.write(header);
  std::uint64_t at = header.size();
  for (const Item& item : items_) {
    const std::uint64_t width = size_of(item.spec.dtype);
    const std::uint64_t step = piece_elements(item.spec.dtype) * width;
    for (std::uint64_t done = 0; done < item.data.size(); done += step) {
      const auto bytes = item.data.subspan(done, std::min(step, item.data.size() - done));
      file.write(bytes);
      written_.push_back({item.tensor,
                          {.offset = item.offset + done / width,
                           .count = bytes.size() / width,
                           .begin = at,
                           .crc = crc32c(bytes)}});
      at += bytes.size();
    }
  }
  file.close();
  file_ = {shard_name(group_.rank()), at, header.size(), crc32c(header)};
}

std::vector<std::uint64_t> SaveJob::written_words() const {
  std::vector<std::uint64_t> words;
  if (file_.bytes == 0) return words;
  words = {file_.bytes, file_.header_bytes, file_.header_crc};
  for (const Written& w : written_)
    words.insert(words.end(),
                 {w.tensor, w.piece.offset, w.piece.count, w.piece.begin, w.piece.crc});
  return words;
}

void SaveJob::add_file(int rank, const std::vector<std::uint64_t>& words) {
  if (words.empty()) return;
  const auto file = static_cast<std::uint32_t>(manifest_.files.size());
  manifest_.files.push_back(
      {shard_name(rank), words[0], words[1], static_cast<std::uint32_t>(words[2])});
  for (std::size_t i = 3; i + 5 <= words.size(); i += 5)
    manifest_.tensors.at(words[i]).pieces.push_back(
        {.offset = words[i + 1],
         .count = words[i + 2],
         .file = file,
         .begin = words[i + 3],
         .crc = static_cast<std::uint32_t>(words[i + 4])});
}

std::string SaveJob::finish() try {
  // A rank that comes here has its shard and the name of it on the disk, or an error.
  const auto ranks = agree(group_, fmt::format("end of the save of step {}", manifest_.step), [&] {
    if (error_) std::rethrow_exception(error_);
    return nlohmann::json(written_words());
  });
  const auto names =
      agree(group_, fmt::format("publication of step {}", manifest_.step), [&]() -> nlohmann::json {
        if (group_.rank() != 0) return "";
        for (std::size_t rank = 0; rank < ranks.size(); ++rank)
          add_file(static_cast<int>(rank), ranks[rank].get<std::vector<std::uint64_t>>());
        return publish();
      });
  return names[0].get<std::string>();
} catch (const CheckpointError&) {
  if (group_.rank() == 0) try {
      disk_.remove_tree(temporary_);
    } catch (const CheckpointError&) {  // the next save removes it
    }
  throw;
}

std::string SaveJob::publish() {
  for (const ManifestFile& file : manifest_.files) {
    const std::string path = temporary_ + "/" + file.name;
    if (!exists(path))
      refuse_file(path, 0, "rank 0 does not see it: the directory must be one for all ranks");
    if (const std::uint64_t bytes = InputFile(path).bytes(); bytes != file.bytes)
      refuse_file(path, bytes, "rank 0 sees {} of {} bytes", bytes, file.bytes);
  }
  for (ManifestTensor& tensor : manifest_.tensors)
    std::ranges::sort(tensor.pieces, {}, &ManifestPiece::offset);
  const std::string path = temporary_ + "/" + kManifestName, text = to_text(manifest_);
  parse_manifest(text, path, manifest_limit_);  // what no reader would take is not published
  NewFile manifest(disk_, path);
  manifest.write(text);
  manifest.close();
  disk_.sync_directory(temporary_);

  std::uint64_t sequence = 0;
  for (const std::string& name : list_directory(directory_))
    sequence = std::max(sequence, sequence_of(name).value_or(0));
  const std::string name = checkpoint_name(sequence + 1, manifest_.step);
  disk_.rename(temporary_, directory_ + "/" + name);
  disk_.sync_directory(directory_);

  NewFile latest(disk_, temporary_);
  latest.write(latest_text(name));
  latest.close();
  disk_.rename(temporary_, directory_ + "/" + kLatestName);
  disk_.sync_directory(directory_);
  try {
    retain(name);
  } catch (const CheckpointError& error) {
    CheckpointFailure failure = error.failure();
    failure.message = fmt::format("{} is complete, but an older one could not be removed: {}", name,
                                  failure.message);
    throw CheckpointError(std::move(failure));
  }
  return name;
}

void SaveJob::retain(const std::string& newest) {
  std::vector<std::string> complete;
  for (const std::string& name : list_directory(directory_)) {
    if (name.starts_with(kTemporaryPrefix)) disk_.remove_tree(directory_ + "/" + name);
    if (sequence_of(name) && name != newest &&
        exists(directory_ + "/" + name + "/" + kManifestName))
      complete.push_back(name);
  }
  std::ranges::sort(complete, std::greater(), sequence_of);
  // Away with the name first: what is half removed is no checkpoint.
  for (std::size_t i = options_.keep - 1; options_.keep > 0 && i < complete.size(); ++i) {
    const std::string doomed = directory_ + "/" + kTemporaryPrefix + complete[i];
    disk_.rename(directory_ + "/" + complete[i], doomed);
    disk_.remove_tree(doomed);
  }
}

std::string save(const ProcessGroup& group, const std::string& directory, const Snapshot& snapshot,
                 SaveOptions options, FileSystem& disk, std::uint64_t manifest_limit) {
  SaveJob job(group, directory, options, disk, manifest_limit);
  job.begin(snapshot);
  job.write();
  return job.finish();
}

std::string save(const ProcessGroup& group, const std::string& directory, const Snapshot& snapshot,
                 SaveOptions options) {
  return save(group, directory, snapshot, options, real_file_system());
}

}}}  // namespace c10d::v0::parallel
