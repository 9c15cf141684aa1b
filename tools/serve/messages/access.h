// Who may ask the server for anything.
//
// A program of this machine, or whoever has the token. Pages of other sites must not, though they
// run in a browser of this machine: it says of a request from which site's page it comes (Origin),
// and by which name the page's site was asked for (Host). A site whose name is made to mean this
// machine (DNS rebinding) gives itself away by that name, so where there is no token the server has
// to be asked for by an address or as localhost.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "tools/serve/messages/http_message.h"

namespace rondo::serve {

// Throws HttpError 403 for another site's page.
void require_own_site(const HttpHead& head, bool has_token);
// Throws HttpError 401 unless `given` is the token; an empty `token` wants none.
void require_token(std::string_view token, std::string_view given);
// Of "Bearer TOKEN"; empty for anything else.
std::string_view bearer_token(std::string_view authorization);

// Whether nobody but this machine reaches a server of this address.
bool is_loopback(const std::string& address);

}  // namespace rondo::serve
