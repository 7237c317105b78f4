// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "bench/model/record.h"

namespace c10d::bench {

// What a Python says of itself.
struct PythonFacts {
  std::string library;  // libpython, by its path
  std::string home;     // PYTHONHOME of an interpreter that is embedded
  Json path;            // sys.path: of a virtual environment, that of its packages
  std::string program;  // sys.executable
};

// Asks the program: a path, or a name on PATH. Throws std::runtime_error with the reason when it is
// not there, or has no PyTorch or no shared library.
PythonFacts find_pytorch(const std::string& program);

// A reference to a callable of Python.
class PythonCallable {
 public:
  explicit PythonCallable(void* object) noexcept : object_(object) {}
  PythonCallable(PythonCallable&& other) noexcept;
  PythonCallable& operator=(PythonCallable&& other) noexcept;
  ~PythonCallable();
  // Without arguments; what it returns is dropped. Throws std::runtime_error with what Python
  // raised.
  void operator()() const;

 private:
  void* object_;
};

// A Python interpreter in this process: its library is opened at run time, and stays. Each call
// takes the interpreter's lock and gives it back, so that threads of Python modules run between
// calls.
class Interpreter {
 public:
  // The one of `program`. A process has one: for another program it throws std::runtime_error, as
  // find_pytorch() does.
  static Interpreter& of(const std::string& program);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The function NAME of torch_rank.py, with JSON as its only argument, and what it returns as
  // JSON. Throws as PythonCallable.
  Json call(const char* name, const Json& argument);
  // The same where it returns a callable.
  PythonCallable callable(const char* name, const Json& argument);

 private:
  explicit Interpreter(const std::string& program);
  ~Interpreter() = delete;  // threads of Python may still run

  std::string program_;
  void* module_ = nullptr;
};

}  // namespace c10d::bench
