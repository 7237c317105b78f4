// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <system_error>
#include <vector>

#include "c10d/env.h"
#include "c10d/error.h"
#include "src/base/host.h"
#include "src/net/address.h"

namespace c10d { inline namespace v0 {
namespace {

constexpr int kByteBits = 8;

// The bytes of an address, in the order of the wire.
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const auto& raw) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(&raw);
  return {first, first + sizeof raw};
}

// Empty when it is of another family.
Bytes bytes_at(const sockaddr* address) {
  if (address != nullptr && address->sa_family == AF_INET)
    return bytes_of(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  if (address != nullptr && address->sa_family == AF_INET6)
    return bytes_of(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return {};
}

// Empty when it is no numeric address.
Bytes bytes_in(const std::string& text) {
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return bytes_of(four);
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) return bytes_of(six);
  return {};
}

std::string text_of(const Bytes& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(bytes.size() == sizeof(in_addr) ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

// The first `bits` of it, then zeros.
Bytes prefix_of(Bytes bytes, int bits) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int kept = std::clamp(bits - static_cast<int>(i) * kByteBits, 0, kByteBits);
    bytes[i] &= static_cast<std::uint8_t>(0xFFU << static_cast<unsigned>(kByteBits - kept));
  }
  return bytes;
}

int bits_of(const Bytes& mask) {
  int bits = 0;
  for (const std::uint8_t byte : mask) bits += std::popcount(byte);
  return bits;
}

struct OwnAddress {
  std::string interface;
  Bytes bytes;
  int bits = 0;  // of its subnet
  bool is_of_link = false;

  Network network() const {
    return {text_of(bytes), fmt::format("{}/{}", text_of(prefix_of(bytes, bits)), bits)};
  }
};

// Of interfaces that are up: IPv4 before IPv6, and last what needs the name of an interface.
std::vector<OwnAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<OwnAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const Bytes bytes = bytes_at(entry->ifa_addr);
    if (bytes.empty() || (entry->ifa_flags & IFF_UP) == 0) continue;
    constexpr std::uint8_t kLinkFirst = 0xFE, kLinkSecond = 0x80;
    const bool is_of_link =
        bytes.size() == sizeof(in6_addr) && bytes[0] == kLinkFirst && bytes[1] == kLinkSecond;
    addresses.push_back(
        {entry->ifa_name, bytes, bits_of(bytes_at(entry->ifa_netmask)), is_of_link});
  }
  std::ranges::stable_sort(addresses, {}, [](const OwnAddress& address) {
    return (address.is_of_link ? 1000 : 0) + address.bytes.size();
  });
  return addresses;
}

// Whether `name` means this address.
bool is_meant(const OwnAddress& address, const std::string& name) {
  if (name == address.interface) return true;
  const std::size_t slash = name.find('/');
  const Bytes bytes = bytes_in(without_brackets(name.substr(0, slash)));
  if (bytes.size() != address.bytes.size()) return false;
  int bits = static_cast<int>(bytes.size()) * kByteBits;
  if (slash != name.npos) {
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + slash + 1, end, bits);
    const int most = static_cast<int>(bytes.size()) * kByteBits;
    if (error != std::errc() || stop != end || bits < 0 || bits > most) return false;
  }
  return prefix_of(bytes, bits) == prefix_of(address.bytes, bits);
}

[[noreturn]] void throw_no_network(const std::string& name) {
  std::string all;
  for (const OwnAddress& address : own_addresses())
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", address.interface,
                       address.network().subnet);
  throw_failure({.code = Code::unreachable,
                 .message = fmt::format("C10D_NET_INTERFACE={}: no interface, address or subnet of "
                                        "host {}, which has {}",
                                        name, host_name(), all)});
}

}  // namespace

std::optional<Network> find_network(const std::string& name) {
  for (const OwnAddress& address : own_addresses())
    if (is_meant(address, name)) return address.network();
  return std::nullopt;
}

std::vector<Network> chosen_networks() {
  std::vector<Network> networks;
  std::istringstream names(env("C10D_NET_INTERFACE").value_or(""));
  for (std::string name; std::getline(names, name, ',');) {
    std::erase(name, ' ');
    const auto network = find_network(name);
    if (!network) throw_no_network(name);
    const auto is_same = [&](const Network& other) { return other.address == network->address; };
    if (std::ranges::none_of(networks, is_same)) networks.push_back(*network);
  }
  return networks;
}

std::string address_for_others(std::span<const std::string> hosts) {
  if (const auto networks = chosen_networks(); !networks.empty()) return networks.front().address;
  std::string loopback;
  for (const std::string& host : hosts) {
    const std::string address = host.empty() ? "" : address_towards(host);
    if (address.empty()) continue;
    if (!resolve(address, 0).front().is_loopback()) return address;
    loopback = address;
  }
  if (!loopback.empty()) return loopback;
  throw_failure(
      {.code = Code::unreachable,
       .message = fmt::format("no address of host {} leads to the other hosts ({}); "
                              "set C10D_NET_INTERFACE, on every host, to the network that "
                              "joins them",
                              host_name(), fmt::join(hosts, ", "))});
}

std::string doubt_about(const std::string& name) {
  if (name == "localhost" || !bytes_in(without_brackets(name)).empty()) return {};
  try {
    const Address address = resolve(name, 0).front();
    if (!address.is_loopback()) return {};
    return fmt::format("{} is {} on this host, which no other host can reach", name,
                       address.host());
  } catch (const DistNetworkError&) {  // who connects says so
    return {};
  }
}

void choose_congestion_control(int fd) {
  const auto name = env("C10D_NET_CONGESTION");
  if (!name || ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name->data(),
                            static_cast<socklen_t>(name->size())) == 0)
    return;
  throw_failure(
      {.code = Code::unsupported,
       .message = fmt::format("C10D_NET_CONGESTION={}: {} does not allow it ({}); see "
                              "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
                              *name, host_name(), std::generic_category().message(errno))});
}

}}  // namespace c10d::v0
