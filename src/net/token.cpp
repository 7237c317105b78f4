// SPDX-License-Identifier: BSD-3-Clause
#include "src/net/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

#include "c10d/error.h"

namespace c10d { inline namespace v0 {

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string digest(kDigestBytes, '\0');
  unsigned length = 0;
  // OpenSSL takes a null key for "the key of the call before".
  const char* key_data = key.empty() ? "" : key.data();
  // Some of our threads run on while the process exits: OpenSSL must not take itself apart then.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  const auto* result = HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                            reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (result == nullptr || length != kDigestBytes)
    throw_failure({.code = Code::out_of_resources, .message = "OpenSSL could not make an HMAC"});
  return digest;
}

bool equal_secrets(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t n = getrandom(bytes.data() + done, count - done, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      throw_failure({.code = Code::out_of_resources,
                     .message = "the kernel gave no random bytes (getrandom failed)"});
    }
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}}  // namespace c10d::v0
