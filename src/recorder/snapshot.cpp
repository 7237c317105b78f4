// SPDX-License-Identifier: BSD-3-Clause
#include "src/recorder/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "src/net/socket.h"

namespace c10d { inline namespace v0 {
namespace {

// Of all memory that one attach() copies: one group of some 6,000 ranks of this host.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kMostProcesses = 4096;

std::string printable_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

RankRecord read_block(const RankBlock& block, int rank) {
  RankRecord record;
  record.rank = rank;
  record.pid = block.pid;
  record.host = printable_text(read_text(block.host));
  record.left = block.presence.load(std::memory_order_relaxed) == Presence::left;
  record.submitted = block.submitted.load(std::memory_order_relaxed);
  record.finished = block.finished.load(std::memory_order_relaxed);
  record.heartbeat_ns = block.heartbeat_ns.load(std::memory_order_relaxed);
  visit_records(block, [&](const Recorded& op) { record.ops.push_back(op); });
  return record;
}

// A copy of memory, aligned as what it holds.
class MemoryCopy {
 public:
  // Nothing of what is shorter than it was said to be.
  static std::optional<MemoryCopy> of(int fd, std::size_t bytes) {
    MemoryCopy copy(bytes);
    for (std::size_t done = 0; done < bytes;) {
      auto* to = reinterpret_cast<char*>(copy.lines_.data()) + done;
      const ssize_t got = ::pread(fd, to, bytes - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      done += static_cast<std::size_t>(got);
    }
    return copy;
  }
  std::span<const std::byte> bytes() const noexcept {
    return {reinterpret_cast<const std::byte*>(lines_.data()), bytes_};
  }

 private:
  struct alignas(GroupHeader) Line {
    std::byte bytes[alignof(GroupHeader)];
  };
  explicit MemoryCopy(std::size_t bytes)
      : bytes_(bytes), lines_((bytes + sizeof(Line) - 1) / sizeof(Line)) {}
  std::size_t bytes_;
  std::vector<Line> lines_;
};

struct SeenMemory {
  // It is known by its device and inode, however many ranks have it open.
  std::set<std::pair<dev_t, ino_t>> all;
  std::size_t bytes = 0;
};

// How large the sealed memory of a group is that nobody has seen before; else 0.
std::size_t bytes_of_new(int fd, pid_t pid, SeenMemory& seen) {
  struct stat status {};
  if (::fcntl(fd, F_GET_SEALS) < 0 || ::fstat(fd, &status) != 0) return 0;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < sizeof(GroupHeader)) return 0;
  if (!seen.all.insert({status.st_dev, status.st_ino}).second) return 0;
  if (bytes > kMostBytes - seen.bytes)
    throw_failure({.code = Code::out_of_resources,
                   .message = fmt::format(
                       "process {} has a group whose record takes {} bytes, beside {} bytes of "
                       "other groups: more than the {} that are read at once; ask for single ranks "
                       "by their process ids, not for their launcher's",
                       pid, bytes, seen.bytes, kMostBytes)});
  seen.bytes += bytes;
  return bytes;
}

void add_group(std::vector<GroupRecord>& groups, GroupRecord found) {
  const auto same = std::find_if(groups.begin(), groups.end(), [&](const GroupRecord& group) {
    return group.group == found.group && group.size == found.size &&
           std::none_of(group.ranks.begin(), group.ranks.end(), [&](const RankRecord& rank) {
             return std::any_of(found.ranks.begin(), found.ranks.end(),
                                [&](const RankRecord& other) { return other.rank == rank.rank; });
           });
  });
  if (same == groups.end()) return groups.push_back(std::move(found));
  for (RankRecord& rank : found.ranks) same->ranks.push_back(std::move(rank));
  std::sort(same->ranks.begin(), same->ranks.end(),
            [](const RankRecord& a, const RankRecord& b) { return a.rank < b.rank; });
  if (!same->failure) same->failure = std::move(found.failure);
}

// Not by std::filesystem, of whose descriptor the thread sanitizer does not know: it would take it
// for the one that had this number before.
std::vector<std::string> paths_in(const std::string& folder) {
  std::vector<std::string> paths;
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!entries) return paths;
  while (const dirent* entry = ::readdir(entries.get()))
    if (entry->d_name[0] != '.') paths.push_back(folder + "/" + entry->d_name);
  return paths;
}

void read_memory_of(pid_t pid, SeenMemory& seen, std::vector<GroupRecord>& groups) {
  const std::string name = fmt::format("/memfd:{} (deleted)", kControlMemory);
  for (const std::string& path : paths_in(fmt::format("/proc/{}/fd", pid))) {
    std::error_code unreadable;  // closed meanwhile
    if (std::filesystem::read_symlink(path, unreadable) != name) continue;
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const std::size_t bytes = fd ? bytes_of_new(fd.get(), pid, seen) : 0;
    if (bytes == 0) continue;
    if (const std::optional<MemoryCopy> copy = MemoryCopy::of(fd.get(), bytes))
      if (auto group = read_image(copy->bytes())) add_group(groups, std::move(*group));
  }
}

void add_children(pid_t pid, std::vector<pid_t>& processes) {
  for (const std::string& task : paths_in(fmt::format("/proc/{}/task", pid))) {
    std::ifstream children(task + "/children");
    for (pid_t child = 0; children >> child;)
      if (processes.size() < kMostProcesses) processes.push_back(child);
  }
}

}  // namespace

std::optional<GroupRecord> read_image(std::span<const std::byte> image) {
  if (image.size() < sizeof(GroupHeader)) return std::nullopt;
  const auto& header = *reinterpret_cast<const GroupHeader*>(image.data());
  if (header.magic.load(std::memory_order_acquire) != GroupHeader::kMagic) return std::nullopt;
  const std::size_t room = (image.size() - sizeof header) / sizeof(RankBlock);
  const auto ranks = static_cast<std::size_t>(header.ranks);
  if (header.ranks < 0 || ranks > room || header.size < header.ranks || header.first_rank < 0 ||
      header.first_rank > header.size - header.ranks)
    return std::nullopt;
  GroupRecord record;
  record.group = printable_text(read_text(header.group));
  record.size = header.size;
  const RankBlock* const blocks = blocks_of(header);
  for (std::size_t i = 0; i < ranks; ++i)
    if (blocks[i].presence.load(std::memory_order_acquire) != Presence::absent)
      record.ranks.push_back(read_block(blocks[i], header.first_rank + static_cast<int>(i)));
  if (header.state.load(std::memory_order_acquire) == GroupHeader::broken) {
    record.failure = read_cause(header);
    record.failure->message = printable_text(std::move(record.failure->message));
    record.failure->host = printable_text(std::move(record.failure->host));
    record.failure->op = printable_text(std::move(record.failure->op));
    record.failure->group = record.group;
  }
  return record;
}

std::vector<GroupRecord> attach(std::span<const pid_t> processes) {
  std::vector<pid_t> all(processes.begin(), processes.end());
  SeenMemory seen;
  std::vector<GroupRecord> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), all[i]) !=
        all.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    read_memory_of(all[i], seen, groups);
    add_children(all[i], all);
  }
  return groups;
}

}}  // namespace c10d::v0
