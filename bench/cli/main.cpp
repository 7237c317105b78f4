// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "bench/cli/options.h"
#include "bench/run/mpirun.h"
#include "c10d/error.h"

namespace c10d::bench { namespace {

// What is opened next takes the number of a standard stream that is closed, and then gets what was
// meant for the stream.
bool has_standard_streams() {
  const auto is_closed = [](int fd) { return fcntl(fd, F_GETFD) < 0; };
  if (is_closed(STDOUT_FILENO)) return false;
  for (const int fd : {STDIN_FILENO, STDERR_FILENO})
    if (is_closed(fd) && open("/dev/null", O_RDWR) != fd) return false;
  return true;
}

}}  // namespace c10d::bench

int main(int argc, char** argv) {
  if (!c10d::bench::has_standard_streams()) {
    std::fprintf(stderr,
                 "c10d-bench: stdout is closed; redirect it to /dev/null to discard the output\n");
    return 1;
  }
  try {
    if (argc > 1 && std::string_view(argv[1]) == "exec-mpirun")
      return c10d::bench::exec_mpirun(argc, argv);
    const c10d::bench::Parsed parsed = c10d::bench::parse_options(argc, argv);
    if (parsed.exit_code) return *parsed.exit_code;
    const int code = parsed.options.command(parsed.options);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "c10d-bench: stdout: cannot be written\n");
    return code == 0 ? 1 : code;
  } catch (const c10d::InvalidArgument& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    return 2;
  } catch (const c10d::DistTimeoutError& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    return 124;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "c10d-bench: %s\n", error.what());
    return 1;
  }
}
