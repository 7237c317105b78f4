// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace c10d::bench {

// A column of a table is a backend, and may say behind an @ which one: "mpi@mpich" with that MPI,
// "torch:gloo@/usr/bin/python3" with the PyTorch of that Python, "native@B" of the second of two
// builds.

inline std::string backend_of(const std::string& column) {
  return column.substr(0, column.find('@'));
}
// "mpich", "B"; empty where there is no @.
inline std::string which_of(const std::string& column) {
  const std::size_t at = column.find('@');
  return at == std::string::npos ? "" : column.substr(at + 1);
}
inline bool is_mpi(const std::string& column) {
  const std::string backend = backend_of(column);
  return backend == "mpi" || backend == "raw:mpi";
}
inline bool is_torch(const std::string& column) { return column.starts_with("torch:"); }
// The Python of a column of PyTorch.
inline std::string python_of(const std::string& column) {
  const std::string which = which_of(column);
  return which.empty() ? "python3" : which;
}

}  // namespace c10d::bench
