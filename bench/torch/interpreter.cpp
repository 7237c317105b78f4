// SPDX-License-Identifier: BSD-3-Clause
#include "bench/torch/interpreter.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bench/torch/torch_rank.h"
#include "c10d/error.h"
#include "c10d/launch.h"

namespace c10d::bench {
namespace {

// Of Python's limited API, which is the same in every version since 3.10: a PyObject is a void.
struct Api {
  void (*Py_InitializeEx)(int) = nullptr;
  void* (*PyEval_SaveThread)() = nullptr;
  int (*PyGILState_Ensure)() = nullptr;
  void (*PyGILState_Release)(int) = nullptr;
  void (*Py_DecRef)(void*) = nullptr;
  void* (*Py_CompileString)(const char*, const char*, int) = nullptr;
  void* (*PyImport_ExecCodeModule)(const char*, void*) = nullptr;
  void* (*PyObject_GetAttrString)(void*, const char*) = nullptr;
  void* (*PyObject_CallFunctionObjArgs)(void*, ...) = nullptr;
  void* (*PyObject_Str)(void*) = nullptr;
  void* (*PyUnicode_FromStringAndSize)(const char*, ssize_t) = nullptr;
  const char* (*PyUnicode_AsUTF8AndSize)(void*, ssize_t*) = nullptr;
  int (*PySys_SetObject)(const char*, void*) = nullptr;
  void* (*PyList_New)(ssize_t) = nullptr;
  int (*PyList_Append)(void*, void*) = nullptr;
  void (*PyErr_Fetch)(void**, void**, void**) = nullptr;
  void (*PyErr_NormalizeException)(void**, void**, void**) = nullptr;
  void (*PyErr_Clear)() = nullptr;
};
Api api;

[[noreturn]] void cannot(const std::string& why) { throw std::runtime_error(why); }

void open_api(const PythonFacts& facts) {
  // Global: modules of Python look for its functions in the process.
  void* const library = dlopen(facts.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) cannot(fmt::format("{}: {}", facts.program, dlerror()));
  const auto find = [&](auto& function, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) cannot(fmt::format("{} has no {}", facts.library, name));
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define C10D_FIND(name) find(api.name, #name)
  C10D_FIND(Py_InitializeEx);
  C10D_FIND(PyEval_SaveThread);
  C10D_FIND(PyGILState_Ensure);
  C10D_FIND(PyGILState_Release);
  C10D_FIND(Py_DecRef);
  C10D_FIND(Py_CompileString);
  C10D_FIND(PyImport_ExecCodeModule);
  C10D_FIND(PyObject_GetAttrString);
  C10D_FIND(PyObject_CallFunctionObjArgs);
  C10D_FIND(PyObject_Str);
  C10D_FIND(PyUnicode_FromStringAndSize);
  C10D_FIND(PyUnicode_AsUTF8AndSize);
  C10D_FIND(PySys_SetObject);
  C10D_FIND(PyList_New);
  C10D_FIND(PyList_Append);
  C10D_FIND(PyErr_Fetch);
  C10D_FIND(PyErr_NormalizeException);
  C10D_FIND(PyErr_Clear);
#undef C10D_FIND
}

// The interpreter's lock, for as long as this lives.
class Locked {
 public:
  Locked() : state_(api.PyGILState_Ensure()) {}
  ~Locked() { api.PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int state_;
};

struct Drop {
  void operator()(void* object) const { api.Py_DecRef(object); }
};
using Reference = std::unique_ptr<void, Drop>;  // dropped under the lock

std::string text_of(void* object) {
  const Reference text(api.PyObject_Str(object));
  ssize_t length = 0;
  const char* const bytes = text ? api.PyUnicode_AsUTF8AndSize(text.get(), &length) : nullptr;
  if (bytes != nullptr) return {bytes, static_cast<std::size_t>(length)};
  api.PyErr_Clear();
  return "what Python says is no text";
}

[[noreturn]] void throw_raised() {
  void *type = nullptr, *value = nullptr, *trace = nullptr;
  api.PyErr_Fetch(&type, &value, &trace);
  api.PyErr_NormalizeException(&type, &value, &trace);
  const Reference drop_type(type), drop_value(value), drop_trace(trace);
  const Reference name(api.PyObject_GetAttrString(type, "__name__"));
  if (!name) api.PyErr_Clear();
  throw std::runtime_error(fmt::format("{}: {}", name ? text_of(name.get()) : "Python",
                                       value == nullptr ? "" : text_of(value)));
}

Reference checked(void* object) {
  if (object == nullptr) throw_raised();
  return Reference(object);
}

Reference python_string(const std::string& value) {
  return checked(api.PyUnicode_FromStringAndSize(value.data(), static_cast<ssize_t>(value.size())));
}

Reference call_function(void* module, const char* name, const Json& argument) {
  const Reference function = checked(api.PyObject_GetAttrString(module, name));
  const Reference json = python_string(argument.dump());
  return checked(api.PyObject_CallFunctionObjArgs(function.get(), json.get(), nullptr));
}

// An interpreter that is embedded takes the first python3 on PATH for its own, unless PYTHONHOME
// says where it is. Children shall not see that.
void initialize(const std::string& home) {
  ::setenv("PYTHONHOME", home.c_str(), 1);
  api.Py_InitializeEx(0);  // signals stay with the program
  ::unsetenv("PYTHONHOME");
}

void set_path(const Json& path) {
  const Reference list = checked(api.PyList_New(0));
  for (const Json& folder : path)
    if (api.PyList_Append(list.get(), python_string(folder.get<std::string>()).get()) != 0)
      throw_raised();
  if (api.PySys_SetObject("path", list.get()) != 0) throw_raised();
}

}  // namespace

PythonFacts find_pytorch(const std::string& program) {
  const char* const question =
      "import importlib.util, json, os, sys, sysconfig\n"
      "said = sysconfig.get_config_var\n"
      "name = said('INSTSONAME') or ''\n"
      "places = [os.path.join(said(at) or '', more, name) for at in ('LIBDIR', 'LIBPL')\n"
      "          for more in ('', said('MULTIARCH') or '')]\n"
      "torch = importlib.util.find_spec('torch')\n"
      "print(json.dumps({\n"
      "    'torch': bool(torch and torch.origin),\n"
      "    'library': next((at for at in places if '.so' in name and os.path.exists(at)), ''),\n"
      "    'home': sys.base_prefix + ':' + sys.base_exec_prefix,\n"
      "    'path': [at for at in sys.path if at], 'program': sys.executable}))\n";
  std::string said, complaint;
  LaunchOptions options;
  options.command = {program, "-c", question};
  options.timeout = std::chrono::seconds(30);
  options.on_line = [&](int, bool is_stderr, std::string_view line) {
    (is_stderr ? complaint : said) = line;
  };
  try {
    const LaunchResult ended = launch(options);
    if (ended.forwarded_signal != 0) std::raise(ended.forwarded_signal);
    if (ended.exit_code != 0)
      cannot(fmt::format("{} is no Python: exit code {} {}", program, ended.exit_code, complaint));
  } catch (const InvalidArgument& error) {
    cannot(error.what());
  }
  const Json facts = Json::parse(said, nullptr, false);
  if (!facts.is_object() || !facts.contains("library"))
    cannot(fmt::format("{} is no Python: it said '{}'", program, said));
  if (!facts["torch"].get<bool>())
    cannot(
        fmt::format("{} has no PyTorch; install it (Debian: python3-torch, pip: torch), or name a "
                    "Python that has it: torch:gloo@PYTHON",
                    facts["program"].get<std::string>()));
  PythonFacts python{facts["library"], facts["home"], facts["path"], facts["program"]};
  if (python.library.empty())
    cannot(fmt::format("{} has no shared library libpython (Debian: libpython3.11)", program));
  return python;
}

PythonCallable::PythonCallable(PythonCallable&& other) noexcept
    : object_(std::exchange(other.object_, nullptr)) {}
PythonCallable& PythonCallable::operator=(PythonCallable&& other) noexcept {
  std::swap(object_, other.object_);
  return *this;
}
PythonCallable::~PythonCallable() {
  if (object_ == nullptr) return;
  const Locked locked;
  api.Py_DecRef(object_);
}
void PythonCallable::operator()() const {
  const Locked locked;
  checked(api.PyObject_CallFunctionObjArgs(object_, nullptr));
}

Interpreter::Interpreter(const std::string& program) : program_(program) {
  const PythonFacts facts = find_pytorch(program);
  open_api(facts);
  initialize(facts.home);
  Json path = facts.path;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  path.push_back(here.parent_path() / "python");  // of a build: c10d_torch
  try {
    set_path(path);
    if (api.PySys_SetObject("executable", python_string(facts.program).get()) != 0) throw_raised();
    constexpr int kFileInput = 257;  // Py_file_input
    const Reference code = checked(api.Py_CompileString(kTorchRank, "torch_rank.py", kFileInput));
    module_ = checked(api.PyImport_ExecCodeModule("torch_rank", code.get())).release();
  } catch (...) {
    api.PyEval_SaveThread();
    throw;
  }
  api.PyEval_SaveThread();
}

Interpreter& Interpreter::of(const std::string& program) {
  static Interpreter* the_one = nullptr;
  static std::string tried;  // one that could not start cannot be started again
  if (the_one == nullptr) {
    if (!tried.empty()) cannot(tried);
    try {
      the_one = new Interpreter(program);
    } catch (const std::exception& error) {
      tried = error.what();
      throw;
    }
  }
  if (the_one->program_ != program)
    cannot(fmt::format("this process runs {}, and a process has one Python", the_one->program_));
  return *the_one;
}

Json Interpreter::call(const char* name, const Json& argument) {
  const Locked locked;
  return Json::parse(text_of(call_function(module_, name, argument).get()));
}

PythonCallable Interpreter::callable(const char* name, const Json& argument) {
  const Locked locked;
  return PythonCallable(call_function(module_, name, argument).release());
}

}  // namespace c10d::bench
