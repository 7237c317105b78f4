// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/frame.h"

#include <fmt/format.h>

#include "src/net/bytes.h"

namespace c10d { inline namespace v0 {

namespace {

// Stable, unlike the values of Code: number i + 1 is kWireCodes[i].
constexpr Code kWireCodes[] = {Code::corrupt,           Code::store_error, Code::store_limit,
                               Code::timed_out,         Code::wrong_job,   Code::version_mismatch,
                               Code::not_authenticated, Code::store_lost,  Code::mismatch};

constexpr std::size_t kIdOffset = 8;
constexpr std::size_t kLengthOffset = 16;

void overwrite(std::string& out, std::size_t offset, std::uint64_t value) {
  std::string bytes;
  put(bytes, value);
  out.replace(offset, bytes.size(), bytes);
}

}  // namespace

std::uint8_t wire_code(Code code) noexcept {
  const auto* found = std::find(std::begin(kWireCodes), std::end(kWireCodes), code);
  return found == std::end(kWireCodes) ? 1 : static_cast<std::uint8_t>(found - kWireCodes + 1);
}

std::optional<Code> code_from_wire(std::uint8_t number) noexcept {
  if (number == 0 || number > std::size(kWireCodes)) return {};
  return kWireCodes[number - 1];
}

std::size_t begin_frame(std::string& out, std::uint8_t type, std::uint64_t id) {
  const std::size_t start = out.size();
  put(out, kFrameMagic);
  put(out, kFrameVersion);
  put(out, type);
  put(out, std::uint8_t{0});
  put(out, id);
  put(out, std::uint64_t{0});
  return start;
}

void end_frame(std::string& out, std::size_t start) {
  overwrite(out, start + kLengthOffset, out.size() - start - kFrameHeaderBytes);
}

void set_frame_id(std::string& frame, std::uint64_t id) { overwrite(frame, kIdOffset, id); }

void append_frame(std::string& out, std::uint8_t type, std::uint64_t id, std::string_view body) {
  const std::size_t start = begin_frame(out, type, id);
  out.append(body);
  end_frame(out, start);
}

std::optional<Failure> parse_header(std::string_view bytes, std::uint64_t max_body,
                                    FrameHeader& header) {
  ByteReader reader(bytes.substr(0, kFrameHeaderBytes));
  const auto magic = reader.take<std::uint32_t>();
  const auto version = reader.take<std::uint16_t>();
  header.type = reader.take<std::uint8_t>();
  header.flags = reader.take<std::uint8_t>();
  header.id = reader.take<std::uint64_t>();
  header.length = reader.take<std::uint64_t>();
  if (magic != kFrameMagic)
    return Failure{.code = Code::corrupt,
                   .message =
                       "the other side does not speak the protocol of c10d; check that "
                       "address and port are those of the job"};
  if (version != kFrameVersion)
    return Failure{.code = Code::version_mismatch,
                   .message = fmt::format("the other side speaks version {} of the protocol and "
                                          "this one version {}; use one release of c10d for all "
                                          "ranks",
                                          version, kFrameVersion)};
  if (header.flags != 0)
    return Failure{.code = Code::corrupt, .message = "a frame with unknown flags arrived"};
  if (header.length > max_body)
    return Failure{
        .code = Code::corrupt,
        .message = fmt::format("a frame of {} bytes arrived where at most {} are allowed",
                               header.length, max_body)};
  return {};
}

}}  // namespace c10d::v0
