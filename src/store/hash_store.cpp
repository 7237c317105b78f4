// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>

#include "src/base/mutex.h"
#include "src/store/pending_requests.h"
#include "src/store/request_store.h"

namespace c10d { inline namespace v0 {

Store::~Store() = default;

namespace {

class HashStore final : public RequestStore<Store> {
 public:
  HashStore(Duration timeout, StoreLimits limits) : RequestStore(timeout), engine_(limits) {}

 private:
  Reply perform(const Request& request, Deadline deadline) override {
    std::optional<Reply> answer;
    CondVar answered;
    MutexLock lock(mutex_);
    engine_.submit(request, deadline, [&](Reply reply) {
      answer = std::move(reply);
      answered.notify_one();
    });
    while (!answer) {
      answered.wait_until(mutex_, deadline);
      if (!answer) engine_.expire(std::chrono::steady_clock::now());
    }
    return *std::move(answer);
  }

  Mutex mutex_;
  Engine engine_ C10D_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<Store> make_hash_store(Duration timeout, StoreLimits limits) {
  return std::make_shared<HashStore>(timeout, limits);
}

}}  // namespace c10d::v0
