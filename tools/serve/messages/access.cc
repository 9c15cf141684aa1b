#include "tools/serve/messages/access.h"

#include <arpa/inet.h>

#include <algorithm>

#include "kernels/base/cpu/printable.h"

namespace rondo::serve {
namespace {

// "[::1]:8080" -> "::1", "localhost:8080" -> "localhost"
std::string name_in(std::string_view host) {
  if (host.starts_with('['))
    return std::string(host.substr(1, std::min(host.find(']'), host.size()) - 1));
  return std::string(host.substr(0, host.rfind(':')));
}

bool is_address(const std::string& name) {
  in6_addr parsed;
  return ::inet_pton(AF_INET, name.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &parsed) == 1;
}

std::string shown(const std::string& text) { return printable_start(text, 100); }

}  // namespace

void require_own_site(const HttpHead& head, bool has_token) {
  if (!head.origin.empty() && head.origin != "http://" + head.host &&
      head.origin != "https://" + head.host)
    throw HttpError(403, str("the request comes from a page of ", shown(head.origin),
                             ", expected one of this server, http://", shown(head.host)));
  if (has_token || head.host.empty()) return;
  const std::string name = name_in(head.host);
  if (name != "localhost" && !is_address(name))
    throw HttpError(403, str("the server was asked for as ", shown(head.host),
                             ", expected localhost or an address, for it has no token"));
}

void require_token(std::string_view token, std::string_view given) {
  if (token.empty()) return;
  // How long it takes does not tell how much of it is right.
  unsigned char differs = token.size() != given.size();
  for (size_t i = 0; i < given.size(); ++i)
    differs |= static_cast<unsigned char>(given[i] ^ token[i % token.size()]);
  if (differs)
    throw HttpError(401,
                    given.empty() ? "there is no token, expected the header Authorization: Bearer "
                                    "TOKEN"
                                  : "the token is not the server's",
                    "", "invalid_api_key");
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view scheme = "Bearer ";
  return authorization.starts_with(scheme) ? authorization.substr(scheme.size())
                                           : std::string_view();
}

bool is_loopback(const std::string& address) {
  in_addr v4;
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace rondo::serve
