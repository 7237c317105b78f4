// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "c10d/error.h"

// The envelope of everything that we send over TCP; docs/wire-format.md has the picture.
namespace c10d { inline namespace v0 {

inline constexpr std::uint32_t kFrameMagic = 0x64303163;  // "c10d" as bytes
inline constexpr std::uint16_t kFrameVersion = 3;         // with 0x46, later
inline constexpr std::size_t kFrameHeaderBytes = 24;

struct FrameHeader {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint64_t id = 0;
  std::uint64_t length = 0;
};

struct Frame {
  FrameHeader header;
  std::string_view body;
};

// Appends a header whose length is still open; returns where it starts. What is appended after it
// is the body.
C10D_API std::size_t begin_frame(std::string& out, std::uint8_t type, std::uint64_t id);
C10D_API void end_frame(std::string& out, std::size_t start);
// Gives the frame that starts `frame` another id.
C10D_API void set_frame_id(std::string& frame, std::uint64_t id);
C10D_API void append_frame(std::string& out, std::uint8_t type, std::uint64_t id,
                           std::string_view body);

// Reads the first kFrameHeaderBytes of `bytes`. A failure is corrupt or version_mismatch.
C10D_API std::optional<Failure> parse_header(std::string_view bytes, std::uint64_t max_body,
                                             FrameHeader& header);

// Failures cross the wire as (number, message). 0 = no failure; an unknown code travels as
// Code::corrupt.
C10D_API std::uint8_t wire_code(Code code) noexcept;
C10D_API std::optional<Code> code_from_wire(std::uint8_t number) noexcept;

// Cuts a byte stream into frames. Every byte is looked at once, memory grows with what has arrived
// and never with what a header promises.
class FrameParser {
 public:
  explicit FrameParser(std::uint64_t max_body) noexcept : max_body_(max_body) {}
  void set_max_body(std::uint64_t max_body) noexcept { max_body_ = max_body; }

  // Calls `sink(const Frame&) -> bool` for every frame that is complete, until it returns false:
  // the rest of `bytes` is then dropped. The body is borrowed until the sink returns. After a
  // failure the stream is useless.
  template <class Sink>
  std::optional<Failure> feed(std::string_view bytes, Sink&& sink) {
    while (!bytes.empty()) {
      if (partial_.empty() && bytes.size() >= kFrameHeaderBytes) {
        if (auto failure = parse_header(bytes, max_body_, header_)) return failure;
        if (bytes.size() - kFrameHeaderBytes >= header_.length) {
          const Frame frame{header_, bytes.substr(kFrameHeaderBytes, header_.length)};
          bytes.remove_prefix(kFrameHeaderBytes + header_.length);
          if (!sink(frame)) return {};
          continue;
        }
      }
      if (partial_.size() < kFrameHeaderBytes) {
        take(bytes, kFrameHeaderBytes);
        if (partial_.size() < kFrameHeaderBytes) return {};
        if (auto failure = parse_header(partial_, max_body_, header_)) return failure;
      }
      take(bytes, kFrameHeaderBytes + header_.length);
      if (partial_.size() < kFrameHeaderBytes + header_.length) return {};
      const std::string whole = std::exchange(partial_, {});
      if (!sink(Frame{header_, std::string_view(whole).substr(kFrameHeaderBytes)})) return {};
    }
    return {};
  }

 private:
  // Moves bytes to partial_ until that has `size` of them.
  void take(std::string_view& bytes, std::size_t size) {
    const std::size_t count = std::min(bytes.size(), size - partial_.size());
    partial_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
  }

  std::uint64_t max_body_;
  FrameHeader header_;
  std::string partial_;
};

}}  // namespace c10d::v0
