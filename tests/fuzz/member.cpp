// SPDX-License-Identifier: BSD-3-Clause
// What a member of the job can send. The first byte says in what pieces the rest arrives, the
// second after how many pieces the connection breaks and is made again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "src/net/token.h"
#include "src/store/server_state.h"

using namespace c10d;

namespace {

const HandshakeOptions kOptions{.job = "job", .role = "store", .token = std::string(32, 't')};
const StoreLimits kLimits{.key_bytes = 64,
                          .value_bytes = 1024,
                          .total_bytes = 16 * 1024,
                          .keys = 32,
                          .clients = 4,
                          .output_queue_bytes = 8 * 1024};

std::unique_ptr<Session> join(Service& service, const std::string& id, bool resume) {
  auto session = std::make_unique<Session>(service, [] {});
  ClientHandshake handshake(kOptions, id, resume);
  std::string out = handshake.hello();
  FrameParser parser(kMaxStrangerFrame);
  for (Step step = Step::more; step == Step::more && !session->closing();) {
    session->receive(out);
    out.clear();
    const std::string answer = session->take_output();
    session->sent(answer.size());
    parser.feed(answer, [&](const Frame& frame) {
      step = handshake.step(frame, out);
      return step == Step::more;
    });
  }
  return session;
}

// Whatever was asked, what is answered is in good form.
void check(Session& session) {
  const std::string answer = session.take_output();
  session.sent(answer.size());
  FrameParser parser(max_body_bytes(kLimits));
  const auto failure = parser.feed(answer, [](const Frame& frame) {
    Reply reply;
    const bool good =
        frame.header.type == refusal_frame
            ? refusal_of(frame).code != Code::corrupt || !refusal_of(frame).message.empty()
        : frame.header.type == kLaterFrame ? frame.body.empty()
                                           : decode(frame.body, reply);
    if (!good) std::abort();
    return true;
  });
  if (failure) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = data[0] + std::size_t{1};
  std::size_t pieces_left = data[1];
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  Service service(kOptions, kLimits);
  const std::string id(kClientIdBytes, 'i');
  auto session = join(service, id, false);
  if (session->is_stranger()) std::abort();
  while (!rest.empty()) {
    session->receive(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
    check(*session);
    if (pieces_left-- == 0) {
      session.reset();
      session = join(service, id, true);
      session->take_output();
    }
  }
  service.tick(Deadline::max());
  if (service.engine().waiting() != 0) std::abort();
  return 0;
}
