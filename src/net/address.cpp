// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "c10d/error.h"
#include "src/net/fd.h"

namespace c10d { inline namespace v0 {

namespace {

const sockaddr_in& v4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& v6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

}  // namespace

std::string without_brackets(std::string_view host) {
  const bool bracketed =
      host.starts_with('[') && host.ends_with(']') && host.find(':') != host.npos;
  return std::string(bracketed ? host.substr(1, host.size() - 2) : host);
}

std::string show_host_port(std::string_view host, std::uint16_t port) {
  const bool brackets = !host.starts_with('[') && host.find(':') != host.npos;
  return brackets ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::uint16_t Address::port() const noexcept {
  return ntohs(family() == AF_INET6 ? v6(*this).sin6_port : v4(*this).sin_port);
}

bool Address::is_loopback() const noexcept {
  if (family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
  return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
}

bool Address::is_wildcard() const noexcept {
  if (family() == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
  return v4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family() == AF_INET6)
    inet_ntop(AF_INET6, &v6(*this).sin6_addr, text, sizeof text);
  else
    inet_ntop(AF_INET, &v4(*this).sin_addr, text, sizeof text);
  return text;
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  std::string problem;
  std::vector<Address> addresses = try_to_resolve(host, port, problem);
  if (addresses.empty())
    throw_failure({.code = Code::unreachable, .message = std::move(problem), .host = host});
  return addresses;
}

std::vector<Address> try_to_resolve(const std::string& host, std::uint16_t port,
                                    std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    problem = fmt::format(
        "the name '{}' has no address: {}; check the spelling, or give a numeric address", host,
        ::gai_strerror(error));
    if (error == EAI_AGAIN || error == EAI_NONAME) return {};
    throw_failure({.code = Code::unreachable, .message = problem, .host = host});
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  return addresses;
}

// A connected UDP socket sends nothing.
std::string address_towards(const std::string& host) try {
  constexpr std::uint16_t kAnyPort = 9;
  for (const Address& address : resolve(host, kAnyPort)) {
    const Fd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), address.get(), address.length) == 0)
      return local_address(fd.get()).host();
  }
  return {};
} catch (const DistNetworkError&) {
  return {};
}

std::string interface_names() {
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> list(
      ::if_nameindex(), ::if_freenameindex);
  std::string names;
  for (const auto* entry = list.get(); entry != nullptr && entry->if_index != 0; ++entry)
    names += (names.empty() ? "" : ", ") + std::string(entry->if_name);
  return names;
}

Address local_address(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    throw_failure({.code = Code::unreachable,
                   .message = "getsockname: " + std::generic_category().message(errno)});
  return address;
}

std::string peer_host(int fd) {
  Address address;
  address.length = sizeof address.storage;
  const bool found =
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0;
  return found ? address.host() : "";
}

}}  // namespace c10d::v0
