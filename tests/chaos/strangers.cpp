// SPDX-License-Identifier: BSD-3-Clause
#include "tests/chaos/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

namespace c10d::chaos {

void bother_store(std::uint16_t port, std::uint64_t seed) {
  constexpr int kConnections = 30;
  std::mt19937_64 random(seed);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> open_ones;
  for (int i = 0; i < kConnections; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    std::string noise(random() % 2048, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    // Some frames say that they are long, or short.
    if (noise.size() >= 8 && random() % 2 == 0)
      noise.replace(0, 4, 4, random() % 2 ? '\xff' : '\0');
    static_cast<void>(send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    if (random() % 2 == 0)
      close(fd);
    else
      open_ones.push_back(fd);
  }
  for (const int fd : open_ones) close(fd);
}

}  // namespace c10d::chaos
