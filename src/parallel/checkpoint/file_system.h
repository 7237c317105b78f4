// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c10d/parallel/checkpoint_info.h"

namespace c10d { inline namespace v0 { namespace parallel {

// What a checkpoint does to a disk, one virtual per operation, so that a test can let the n-th one
// fail. Every function throws CheckpointError that names the file and what the system said.
class C10D_API FileSystem {
 public:
  virtual ~FileSystem();
  // Whether it was made now; a directory that exists is no error.
  virtual bool make_directory(const std::string& path);
  // A new file, as a descriptor. A file of that name, or a link, is an error.
  virtual int create(const std::string& path);
  virtual void write(int file, const std::string& path, std::span<const std::byte> bytes);
  virtual void sync(int file, const std::string& path);
  // Closes the descriptor also when it throws.
  virtual void close(int file, const std::string& path);
  virtual void sync_directory(const std::string& path);
  // Replaces a file at `to`.
  virtual void rename(const std::string& from, const std::string& to);
  // The same of a file; whatever is at `to` is an error.
  virtual void rename_to_new(const std::string& from, const std::string& to);
  // The file or the directory with all that is in it; follows no link. Absent is no error.
  virtual void remove_tree(const std::string& path);
};

// The disk itself.
C10D_API FileSystem& real_file_system();

// A new file that is on the disk when close() has returned; the directory is another matter.
class NewFile {
 public:
  NewFile(FileSystem& disk, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  void close();

 private:
  FileSystem& disk_;
  std::string path_;
  int descriptor_;
};

// A regular file, read. A link, a directory or a device is refused.
class C10D_API InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  std::uint64_t bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  // All of it; more than `limit` bytes are an error.
  std::string text(std::uint64_t limit) const;

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t bytes_ = 0;
};

// Throws CheckpointError: "FILE: WHAT", with the offset.
template <class... Values>
[[noreturn]] void refuse_file(const std::string& path, std::uint64_t offset,
                              fmt::format_string<Values...> what, Values&&... values) {
  throw CheckpointError(
      {.message = fmt::format("{}: {}", path, fmt::format(what, std::forward<Values>(values)...)),
       .file = path,
       .offset = offset});
}

// Throws CheckpointError that names no file.
template <class... Values>
[[noreturn]] void refuse_checkpoint(fmt::format_string<Values...> what, Values&&... values) {
  throw CheckpointError({.message = fmt::format(what, std::forward<Values>(values)...)});
}

// Names in a directory, sorted; empty when there is no such directory.
std::vector<std::string> list_directory(const std::string& path);
bool exists(const std::string& path);

}}}  // namespace c10d::v0::parallel
