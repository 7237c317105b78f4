// SPDX-License-Identifier: BSD-3-Clause
#include "src/parallel/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace c10d { inline namespace v0 { namespace parallel {
namespace {

[[noreturn]] void disk_error(std::string_view what, const std::string& path,
                             std::uint64_t offset = 0, int error = errno) {
  refuse_file(path, offset, "{} failed: {}", what, std::generic_category().message(error));
}

}  // namespace

FileSystem::~FileSystem() = default;

bool FileSystem::make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno != EEXIST) disk_error("mkdir", path);
  return false;
}

int FileSystem::create(const std::string& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) disk_error("create", path);
  return file;
}

void FileSystem::write(int file, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) disk_error("write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void FileSystem::sync(int file, const std::string& path) {
  if (::fsync(file) != 0) disk_error("fsync", path);
}

void FileSystem::close(int file, const std::string& path) {
  if (::close(file) != 0 && errno != EINTR) disk_error("close", path);
}

void FileSystem::sync_directory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) disk_error("open", path);
  const int error = ::fsync(directory) == 0 ? 0 : errno;
  ::close(directory);
  if (error != 0) disk_error("fsync", path, 0, error);
}

void FileSystem::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) disk_error(fmt::format("rename to {}", to), from);
}

void FileSystem::rename_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // A file system without that: NFS.
  const bool is_unknown = errno == EINVAL || errno == ENOSYS;
  if (!is_unknown || ::link(from.c_str(), to.c_str()) != 0)
    disk_error(fmt::format("rename to {}", to), from);
  if (::unlink(from.c_str()) != 0) disk_error("unlink", from);
}

void FileSystem::remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) disk_error("remove", path, 0, error.value());
}

FileSystem& real_file_system() {
  static FileSystem disk;
  return disk;
}

NewFile::NewFile(FileSystem& disk, std::string path)
    : disk_(disk), path_(std::move(path)), descriptor_(disk_.create(path_)) {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void NewFile::write(std::span<const std::byte> bytes) { disk_.write(descriptor_, path_, bytes); }

void NewFile::close() {
  disk_.sync(descriptor_, path_);
  disk_.close(std::exchange(descriptor_, -1), path_);
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
  if (descriptor_ < 0) {
    if (errno == ELOOP) refuse_file(path_, 0, "is a link, which is not followed here");
    disk_error("open", path_);
  }
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (error != 0) disk_error("stat", path_, 0, error);
    refuse_file(path_, 0, "is not a regular file");
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) disk_error(fmt::format("read at byte {}", offset), path_, offset);
    if (got == 0)
      refuse_file(path_, offset, "ends at byte {}, {} bytes too early", offset, to.size());
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (bytes_ > limit)
    refuse_file(path_, limit, "has {} bytes, more than the limit of {}", bytes_, limit);
  std::string text(bytes_, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename());
  if (error && error != std::errc::no_such_file_or_directory)
    disk_error("open", path, 0, error.value());
  std::ranges::sort(names);
  return names;
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

}}}  // namespace c10d::v0::parallel
