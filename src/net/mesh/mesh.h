// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "c10d/call.h"
#include "src/base/mutex.h"
#include "src/net/address.h"
#include "src/net/mesh/link.h"
#include "src/net/mesh/rails.h"
#include "src/net/mesh/rank_socket.h"

namespace c10d { inline namespace v0 {

// The links of one rank to some others of a group, its neighbours (RankGrid, or all). They carry
// small frames, and the end of a process, or of a host, shows at once at its neighbours. There is
// no thread: whoever calls drives. Every member may be called from any thread.
class Mesh {
 public:
  struct Options {
    int rank;
    std::vector<int> neighbours;
    std::string role;   // "mesh"; both ends must name the same
    std::string group;  // and the same
    std::string token;
    std::string address;             // numeric; listened on, at a port that the system chooses
    bool has_more_networks = false;  // which will be added to its links, or to its connections
  };
  // Throws DistNetworkError (unreachable) where this host has no such address.
  explicit Mesh(const Options& options);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const Options& options() const noexcept { return options_; }
  // Where the neighbours call this rank: "tcp://10.0.0.1:40123".
  const std::string& address() const noexcept { return listening_; }
  // Calls the neighbours of higher number, and is called by the others. Returns when all links are
  // open, and listens no more. `address_of(rank)` is what that rank's address() said; empty: there
  // shall be no link to it, which that rank must know, too. `look()` is
  // called now and then, and may throw: for a second also before link_lost or unreachable, for it
  // may know that the neighbour died, and after each try of an address that does not answer. Throws
  // what a neighbour refused, link_lost, unreachable (after three seconds, if the address swallows
  // packets) or timed_out, which name it, or out_of_resources. Links that are open by then stay.
  void connect(const std::function<std::string(int rank)>& address_of,
               const std::function<void()>& look, Deadline deadline);

  // The connections that connect() has made, for another protocol than frames: each rank says
  // nothing on them until it knows that the other end has left connect(). There are none here
  // afterwards. They outlive a host that is silent, or does not read: others watch over hosts.
  struct Connection {
    int neighbour;
    Rails rails;
  };
  std::vector<Connection> take_connections();
  // The connections that another mesh of the same ranks has made over another network. When a
  // network is cut, the links go on over the next: see Rails.
  void add(std::vector<Connection> connections);

  // To one neighbour, and to all but `except`. Does not wait; what is lost shows in drive().
  void send(int neighbour, std::uint8_t type, std::string_view body);
  void send_to_all(std::uint8_t type, std::string_view body, int except = -1);
  struct Message {
    int from;
    std::uint8_t type;
    std::string body;
  };
  struct Loss {
    enum class Kind : std::uint8_t {
      ended,    // the connection, by the other end
      cut_off,  // no answer came, not from its host either
      corrupt   // what came is no frame, or it does not read what is sent
    };
    int neighbour;
    Kind kind;
    std::string why;
  };
  struct News {
    std::vector<Message> messages;  // those of a link in their order
    std::vector<Loss> losses;       // each once, behind its messages
  };
  // Takes what has arrived, and sends what waits. Does not wait.
  News drive();
  bool has_several_networks();
  // Returns when something has arrived, or at the deadline.
  void wait(Deadline deadline);
  // Whether the hosts of all neighbours have what was sent, but for those that are lost.
  bool is_acknowledged();

 private:
  struct Line;
  class Connecting;

  HandshakeOptions handshake_with(int called) const;
  static void post(Line& line, std::uint8_t type, std::string_view body);
  void flush(Line& line, News& news) C10D_REQUIRES(mutex_);
  void receive(Line& line, News& news) C10D_REQUIRES(mutex_);
  static void lose(Line& line, Loss::Kind kind, std::string why, News& news);
  static void lose(Line& line, int error, News& news);

  const Options options_;
  std::optional<RankSocket> listener_;
  std::string listening_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Line>> lines_ C10D_GUARDED_BY(mutex_);  // by number of the neighbour
  std::vector<Message> early_ C10D_GUARDED_BY(mutex_);  // that came while other links were made
};

// Where each of them listens, as one text, and its words.
std::string addresses_of(const std::deque<Mesh>& meshes);
std::vector<std::string> words_of(const std::string& text);

}}  // namespace c10d::v0
