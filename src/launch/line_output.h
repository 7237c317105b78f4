// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "c10d/export.h"
#include "src/net/fd.h"

namespace c10d { inline namespace v0 {

// Control characters but tab in a form that a terminal shows instead of obeying: ESC is "\x1b".
C10D_API std::string visible(std::string_view text);

// Turns a stream of bytes into whole lines. A line longer than the limit comes in pieces, so that a
// rank that never ends its line cannot make the launcher grow.
class C10D_API LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 10;
  using Sink = std::function<void(std::string_view line)>;

  // With `status`, text that ends in a '\r' without a '\n' goes there instead, at once; it is shown
  // until the next such text, an empty one ends it.
  void add(std::string_view bytes, const Sink& sink, const Sink& status = {});
  // At the end of the stream: what is left is a line.
  void finish(const Sink& sink, const Sink& status = {});

 private:
  std::string partial_;
};

// The end of a pipe that reads what a child writes; it does not block.
struct LineStream {
  Fd fd;
  LineSplitter lines;

  // Of a pipe that poll() found readable: once, what is there. At the end closes it. Whether
  // something came.
  C10D_API bool read(const LineSplitter::Sink& sink, const LineSplitter::Sink& status = {});
};

// A line that stays below all others on a terminal. Its members return what to write there.
class StatusLine {
 public:
  // To replace the line by `text`, cut to the width; without text there is no line.
  std::string show(std::string_view text, int columns);
  // To be written before another line, and after it. Both are empty where no status is shown.
  std::string erase() const;
  std::string again() const;

 private:
  std::string text_;
};

// Of the terminal behind stderr, 80 where it does not say; 0 where stderr is no terminal.
int terminal_columns();

// Shows a status on stderr, below the lines of print_rank_line(), until the next; empty: none.
void print_status(std::string_view text);

// What print_rank_line() prints in this thread while it lives is written together: some 50 lines a
// write instead of one.
class C10D_API OutputBatch {
 public:
  OutputBatch() noexcept;
  ~OutputBatch();
  OutputBatch(const OutputBatch&) = delete;
  OutputBatch& operator=(const OutputBatch&) = delete;
  void add(int rank, bool is_stderr, std::string_view line, bool prefix);
  void flush();

 private:
  OutputBatch* const outer_;
  int fd_ = -1;  // of what is to be written
  bool is_terminal_ = false;
  std::string text_;
};

// The last lines of a stream, bounded in number and length.
class LineTail {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kLineBytes = 1000;

  void add(std::string_view line);
  std::string text() const;

 private:
  std::deque<std::string> lines_;
};

}}  // namespace c10d::v0
