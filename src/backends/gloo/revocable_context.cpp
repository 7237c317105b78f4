// SPDX-License-Identifier: BSD-3-Clause
#include "src/backends/gloo/revocable_context.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <set>
#include <stdexcept>

#include "src/base/mutex.h"

namespace c10d { inline namespace v0 {

using gloo::transport::UnboundBuffer;

// The buffers of a context that an op may wait on.
class OpenWaits {
 public:
  void add(UnboundBuffer* buffer) {
    MutexLock lock(mutex_);
    buffers_.insert(buffer);
    if (revoked_) end(buffer);
  }
  void remove(UnboundBuffer* buffer) {
    MutexLock lock(mutex_);
    buffers_.erase(buffer);
  }
  void revoke() {
    MutexLock lock(mutex_);
    revoked_ = true;
    for (UnboundBuffer* buffer : buffers_) end(buffer);
  }

 private:
  // Ends the wait that runs, or else the next one.
  static void end(UnboundBuffer* buffer) {
    buffer->abortWaitSend();
    buffer->abortWaitRecv();
  }

  Mutex mutex_;
  bool revoked_ C10D_GUARDED_BY(mutex_) = false;
  std::set<UnboundBuffer*> buffers_ C10D_GUARDED_BY(mutex_);
};

namespace {

class WatchedBuffer final : public UnboundBuffer {
 public:
  WatchedBuffer(std::unique_ptr<UnboundBuffer> buffer, std::shared_ptr<OpenWaits> waits,
                Deadline deadline)
      : UnboundBuffer(buffer->ptr, buffer->size),
        buffer_(std::move(buffer)),
        waits_(std::move(waits)),
        deadline_(deadline) {
    waits_->add(buffer_.get());
  }
  ~WatchedBuffer() override { waits_->remove(buffer_.get()); }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return buffer_->waitRecv(rank, limited(timeout)) || revoked();
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return buffer_->waitSend(rank, limited(timeout)) || revoked();
  }
  void abortWaitRecv() override { buffer_->abortWaitRecv(); }
  void abortWaitSend() override { buffer_->abortWaitSend(); }
  void send(int peer, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    buffer_->send(peer, slot, offset, bytes);
  }
  void recv(int peer, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    buffer_->recv(peer, slot, offset, bytes);
  }
  void recv(std::vector<int> peers, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    buffer_->recv(std::move(peers), slot, offset, bytes);
  }

 private:
  // Gloo gives each wait of an op the whole timeout of the op.
  std::chrono::milliseconds limited(std::chrono::milliseconds timeout) const {
    return deadline_ == Deadline::max() ? timeout : std::min(timeout, time_until(deadline_));
  }
  // Gloo's collectives do not look at what a wait returns.
  [[noreturn]] static bool revoked() { throw std::runtime_error("the group was revoked"); }

  const std::unique_ptr<UnboundBuffer> buffer_;
  const std::shared_ptr<OpenWaits> waits_;
  const Deadline deadline_;
};

class WatchedTransport final : public gloo::transport::Context {
 public:
  WatchedTransport(std::shared_ptr<gloo::transport::Context> transport,
                   std::shared_ptr<OpenWaits> waits, Deadline deadline)
      : Context(transport->rank, transport->size),
        transport_(std::move(transport)),
        waits_(std::move(waits)),
        deadline_(deadline) {}

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override {
    return transport_->getPair(peer);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    return transport_->createPair(peer);
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes) override {
    return std::make_unique<WatchedBuffer>(transport_->createUnboundBuffer(data, bytes), waits_,
                                           deadline_);
  }

 private:
  const std::shared_ptr<gloo::transport::Context> transport_;
  const std::shared_ptr<OpenWaits> waits_;
  const Deadline deadline_;
};

class ContextOfOp final : public gloo::Context {
 public:
  ContextOfOp(int own_rank, int ranks, std::shared_ptr<gloo::transport::Context> transport)
      : Context(own_rank, ranks) {
    transportContext_ = std::move(transport);
  }
};

}  // namespace

RevocableContext::RevocableContext(int own_rank, int ranks)
    : Context(own_rank, ranks), waits_(std::make_shared<OpenWaits>()) {}

void RevocableContext::adopt(std::shared_ptr<gloo::transport::Device> device,
                             std::shared_ptr<gloo::transport::Context> connections) {
  device_ = std::move(device);
  connections_ = std::move(connections);
  transportContext_ = std::make_shared<WatchedTransport>(connections_, waits_, Deadline::max());
}

std::shared_ptr<gloo::Context> RevocableContext::until(Deadline deadline) const {
  return std::make_shared<ContextOfOp>(
      rank, size, std::make_shared<WatchedTransport>(connections_, waits_, deadline));
}

void RevocableContext::revoke() { waits_->revoke(); }

}}  // namespace c10d::v0
