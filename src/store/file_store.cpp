// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>

#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/sigpipe_guard.h"
#include "src/net/frame.h"
#include "src/net/socket.h"
#include "src/store/key_value_table.h"
#include "src/store/request_store.h"

namespace c10d { inline namespace v0 {

namespace {

using std::chrono::steady_clock;

// Records that are no StoreOp.
enum RecordType : std::uint8_t { join_record = 0x41, leave_record, arrive_record, withdraw_record };

constexpr std::uint64_t kMaxLogBytes = std::uint64_t{1} << 30;
constexpr Duration kFirstFilePause = std::chrono::milliseconds(1);
constexpr Duration kLongestFilePause = std::chrono::milliseconds(10);
constexpr Duration kLeavePatience = std::chrono::seconds(2);

// The file is a log of every change, in the frames of the wire format. Each user replays it into a
// table of its own; a lock on the file makes "replay, look, append" one step. A file tells nobody
// that it has grown, so waiting is polling.
class FileStore final : public RequestStore<Store> {
 public:
  FileStore(std::string path, int size, Duration timeout)
      : RequestStore(timeout), path_(std::move(path)), size_(size), table_(StoreLimits{}) {
    MutexLock lock(mutex_);
    const Deadline deadline = steady_clock::now() + this->timeout();
    while (!join(deadline)) {
      // The last user removed the file between our open and our lock: the next one is new.
    }
  }

  ~FileStore() override {
    // A forked child is no user, and the lock that it would take is its parent's.
    if (::getpid() != owner_) return;
    try {
      MutexLock lock(mutex_);
      leave();
    } catch (const std::exception& error) {
      log(LogLevel::warn, "file store {}: could not record that this rank left: {}", path_,
          error.what());
    }
  }

 private:
  // Holds the lock of the file, with the table up to date.
  class Transaction {
   public:
    Transaction(FileStore& store, Deadline deadline) C10D_REQUIRES(store.mutex_)
        : fd_(store.file_.get()) {
      store.lock_file(deadline);
      try {
        store.replay();
      } catch (...) {
        ::flock(fd_, LOCK_UN);
        throw;
      }
    }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    ~Transaction() { ::flock(fd_, LOCK_UN); }

   private:
    int fd_;
  };
  struct Gate {
    std::int64_t size = 0;
    std::int64_t arrived = 0;
    std::uint64_t generation = 0;
  };

  Reply perform(const Request& request, Deadline deadline) override;
  std::optional<Reply> attempt(const Request& request, Deadline deadline, bool last);
  Reply barrier_until(const Request& request, Deadline deadline);
  bool passed(const Request& request, std::uint64_t ticket) C10D_REQUIRES(mutex_);
  bool join(Deadline deadline) C10D_REQUIRES(mutex_);
  void leave() C10D_REQUIRES(mutex_);
  bool is_still_named() const C10D_REQUIRES(mutex_);
  void lock_file(Deadline deadline) C10D_REQUIRES(mutex_);
  void replay() C10D_REQUIRES(mutex_);
  bool apply(const Frame& record) C10D_REQUIRES(mutex_);
  // Writes the change to the file.
  void write_record(std::uint8_t type, const Request& request) C10D_REQUIRES(mutex_);
  // The same, and carries it out here.
  void record(RecordType type, const Request& request) C10D_REQUIRES(mutex_);
  void forget() C10D_REQUIRES(mutex_);
  std::uint64_t file_size() const C10D_REQUIRES(mutex_);
  Failure io_failure(std::string_view call, int error) const;

  const std::string path_;
  const int size_;
  const pid_t owner_ = ::getpid();
  Mutex mutex_;
  Fd file_ C10D_GUARDED_BY(mutex_);
  Table table_ C10D_GUARDED_BY(mutex_);
  KeyMap<Gate> gates_ C10D_GUARDED_BY(mutex_);
  std::uint64_t last_generation_ C10D_GUARDED_BY(mutex_) = 0;
  std::uint64_t replayed_ C10D_GUARDED_BY(mutex_) = 0;  // bytes
  int joined_ C10D_GUARDED_BY(mutex_) = 0;
  int left_ C10D_GUARDED_BY(mutex_) = 0;
};

Failure FileStore::io_failure(std::string_view call, int error) const {
  const char* remedy = "; take a path that every rank can read and write";
  if (error == ENOSPC || error == EDQUOT) remedy = "; free some space there, or take another path";
  if (error == EFBIG) remedy = "; raise ulimit -f, or use a TCP store";
  if (error == EMFILE || error == ENFILE) remedy = "; raise ulimit -n";
  return {
      .code = Code::store_error,
      .message = fmt::format("file store {}: {}: {}{}", path_, call, error_text(error), remedy)};
}

std::uint64_t FileStore::file_size() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw_failure(io_failure("fstat", errno));
  return static_cast<std::uint64_t>(status.st_size);
}

bool FileStore::is_still_named() const {
  struct stat mine {};
  struct stat named {};
  return ::fstat(file_.get(), &mine) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

bool FileStore::join(Deadline deadline) {
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file_) throw_failure(io_failure("open", errno));
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) throw_failure(io_failure("fstat", errno));
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid())
    throw_failure(
        {.code = Code::store_error,
         .message = fmt::format("file store {}: not a regular file of this user", path_)});
  const Transaction transaction(*this, deadline);
  if (!is_still_named()) {
    forget();
    return false;
  }
  // A user that left makes room: it may have been no rank of the job, or come again for the next
  // world before the others have left this one.
  if (size_ > 0 && joined_ - left_ >= size_)
    throw_failure(
        {.code = Code::store_error,
         .message = fmt::format("file store {}: it has {} users already and the size is {}; "
                                "if these run no more the file is a leftover of another job: "
                                "remove it, or take another path",
                                path_, joined_ - left_, size_)});
  record(join_record, {});
  return true;
}

void FileStore::leave() {
  const Transaction transaction(*this, steady_clock::now() + kLeavePatience);
  record(leave_record, {});
  // Before `size` users came, one that is to come may need what those that left have written.
  const bool is_last = size_ > 0 && joined_ >= size_ && left_ == joined_;
  if (is_last && is_still_named()) ::unlink(path_.c_str());
}

void FileStore::lock_file(Deadline deadline) {
  Duration pause = kFirstFilePause;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) throw_failure(io_failure("flock", errno));
    if (steady_clock::now() >= deadline)
      throw_failure({.code = Code::timed_out,
                     .message = fmt::format("file store {}: another process held the lock of the "
                                            "file until the deadline passed",
                                            path_)});
    ::poll(nullptr, 0, poll_timeout(std::min(deadline, steady_clock::now() + pause)));
    pause = std::min(2 * pause, kLongestFilePause);
  }
}

void FileStore::replay() {
  const std::uint64_t size = file_size();
  if (size < replayed_)
    throw_failure({.code = Code::corrupt,
                   .message = fmt::format("file store {}: the file has shrunk; something else "
                                          "writes to it",
                                          path_)});
  FrameParser parser(max_body_bytes(table_.limits()));
  std::string chunk(std::min<std::uint64_t>(size - replayed_, 1 << 20), '\0');
  bool sound = true;
  // The lock is held all along; the analysis does not see through the parser.
  const auto sink = [&](const Frame& record) C10D_THREAD_ANNOTATION(no_thread_safety_analysis) {
    sound = apply(record);
    replayed_ += kFrameHeaderBytes + record.header.length;
    return sound;
  };
  for (std::uint64_t at = replayed_; at < size && sound;) {
    const ssize_t count = ::pread(file_.get(), chunk.data(), chunk.size(), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw_failure(io_failure("read", count < 0 ? errno : EIO));
    const auto bytes = static_cast<std::size_t>(count);
    if (parser.feed(std::string_view(chunk).substr(0, bytes), sink)) sound = false;
    at += bytes;
  }
  if (!sound)
    throw_failure(
        {.code = Code::corrupt,
         .message = fmt::format("file store {}: byte {} does not start a record; the file "
                                "is not a store of this version",
                                path_, replayed_)});
  // A writer that was killed in mid-record changed nothing: its record goes.
  if (replayed_ < size && ::ftruncate(file_.get(), static_cast<off_t>(replayed_)) != 0)
    throw_failure(io_failure("ftruncate", errno));
}

bool FileStore::apply(const Frame& record) {
  const std::uint8_t type = record.header.type;
  Request request;
  Duration ignored{};
  if (!decode(record.body, ignored, request)) return false;
  if (type >= 1 && type <= kStoreOpCount) {
    request.op = static_cast<StoreOp>(type);
    return is_mutation(request.op) && table_.apply(request).has_value();
  }
  if (type == join_record) return ++joined_ > 0;
  if (type == leave_record) return ++left_ > 0;
  if (request.keys.size() != 1) return false;
  const auto gate = gates_.try_emplace(std::string(request.keys[0])).first;
  if (type == arrive_record) {
    if (gate->second.arrived++ == 0) gate->second.generation = ++last_generation_;
    gate->second.size = request.number;
    if (gate->second.arrived == gate->second.size) gates_.erase(gate);
    return true;
  }
  if (--gate->second.arrived <= 0) gates_.erase(gate);
  return type == withdraw_record;
}

void FileStore::write_record(std::uint8_t type, const Request& request) {
  std::string record;
  record.reserve(kFrameHeaderBytes + encoded_size(request));
  begin_frame(record, type, 0);
  encode(Duration::zero(), request, record);
  end_frame(record, 0);
  if (replayed_ + record.size() > kMaxLogBytes)
    throw_failure(
        {.code = Code::store_limit,
         .message = fmt::format("file store {}: the file would exceed {} bytes; use a TCP "
                                "store for so many changes",
                                path_, kMaxLogBytes)});
  const WriteSignalsBlock block;
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t count = ::pwrite(file_.get(), record.data() + done, record.size() - done,
                                   static_cast<off_t>(replayed_ + done));
    if (count < 0 && errno == EINTR) continue;
    // What is there of the record goes when the next user looks.
    if (count <= 0) throw_failure(io_failure("write", count < 0 ? errno : EIO));
    done += static_cast<std::size_t>(count);
  }
  replayed_ += record.size();
}

void FileStore::record(RecordType type, const Request& request) {
  write_record(type, request);
  std::string body;
  encode(Duration::zero(), request, body);
  apply({.header = {.type = type}, .body = body});
}

void FileStore::forget() {
  replayed_ = 0;
  table_ = Table(StoreLimits{});
  gates_.clear();
  last_generation_ = 0;
  joined_ = left_ = 0;
}

std::optional<Reply> FileStore::attempt(const Request& request, Deadline deadline, bool last) {
  MutexLock lock(mutex_);
  // Nothing new in the file, and it was not enough before.
  if (!last && may_wait(request.op) && file_size() == replayed_ && !table_.missing(request).empty())
    return {};
  const Transaction transaction(*this, std::max(deadline, steady_clock::now() + kLongestFilePause));
  std::optional<Reply> reply = table_.apply(request);
  if (reply && !reply->failure && is_mutation(request.op)) {
    try {
      write_record(static_cast<std::uint8_t>(request.op), request);
    } catch (...) {
      // The table is ahead of the file now, which is what counts: the next call reads it anew.
      forget();
      throw;
    }
  }
  if (!reply && last) reply = timed_out(table_.missing(request));
  return reply;
}

bool FileStore::passed(const Request& request, std::uint64_t ticket) {
  const auto gate = gates_.find(request.keys[0]);
  return gate == gates_.end() || gate->second.generation != ticket;
}

Reply FileStore::barrier_until(const Request& request, Deadline deadline) {
  std::uint64_t ticket = 0;
  Duration pause = kFirstFilePause;
  for (bool arrived = false;; arrived = true) {
    const bool last = steady_clock::now() >= deadline;
    {
      MutexLock lock(mutex_);
      // An arrival that stayed would open the next round one caller early.
      const Duration patience = arrived ? kLeavePatience : kLongestFilePause;
      const Transaction transaction(*this, std::max(deadline, steady_clock::now() + patience));
      if (!arrived) {
        if (auto refusal = refuse(request, table_.limits())) return *std::move(refusal);
        const auto gate = gates_.find(request.keys[0]);
        if (gate != gates_.end() && gate->second.size != request.number)
          return error_reply(
              Code::store_error,
              fmt::format("barrier {}: called for {} callers while others wait for {}",
                          quoted(request.keys[0]), request.number, gate->second.size));
        ticket = gate == gates_.end() ? last_generation_ + 1 : gate->second.generation;
        record(arrive_record, request);
      }
      if (passed(request, ticket)) return {};
      if (last) {
        const std::int64_t count = gates_.find(request.keys[0])->second.arrived;
        record(withdraw_record, request);
        return error_reply(Code::timed_out,
                           fmt::format("barrier {}: the deadline passed when {} of {} had arrived",
                                       quoted(request.keys[0]), count, request.number));
      }
    }
    ::poll(nullptr, 0, poll_timeout(std::min(deadline, steady_clock::now() + pause)));
    pause = std::min(2 * pause, kLongestFilePause);
  }
}

Reply FileStore::perform(const Request& request, Deadline deadline) {
  if (::getpid() != owner_)
    return error_reply(
        Code::forked_child,
        fmt::format("file store {} belongs to the parent process; make one after fork", path_));
  if (request.op == StoreOp::barrier) return barrier_until(request, deadline);
  Duration pause = kFirstFilePause;
  for (;;) {
    const bool last = steady_clock::now() >= deadline;
    if (auto reply = attempt(request, deadline, last)) return *std::move(reply);
    ::poll(nullptr, 0, poll_timeout(std::min(deadline, steady_clock::now() + pause)));
    pause = std::min(2 * pause, kLongestFilePause);
  }
}

}  // namespace

std::shared_ptr<Store> make_file_store(std::string path, int size, Duration timeout) {
  if (size < 0) throw InvalidArgument(fmt::format("make_file_store: the size is {}", size));
  return std::make_shared<FileStore>(std::move(path), size, timeout);
}

}}  // namespace c10d::v0
