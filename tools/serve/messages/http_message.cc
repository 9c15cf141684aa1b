#include "tools/serve/messages/http_message.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/io/json.h"

namespace rondo::serve {
namespace {

constexpr int retry_seconds = 1;

const char* type_of(int status) {
  if (status >= 500) return "server_error";
  if (status == 401) return "authentication_error";
  return status == 403 ? "permission_error" : "invalid_request_error";
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string error_text(const HttpError& e) {
  return Json::object({{"error", Json::object({{"message", e.what()},
                                               {"type", type_of(e.status)},
                                               {"param", or_null(e.param)},
                                               {"code", or_null(e.code)}})}})
      .dump_replacing();
}

HttpReply reply_of(const HttpError& e) {
  HttpReply reply = json_reply(error_text(e));
  reply.status = e.status;
  if (e.status == 503) reply.retry_after = retry_seconds;
  reply.allow = e.allow;
  return reply;
}

HttpReply json_reply(std::string body) { return {200, "application/json", std::move(body) + "\n"}; }

double milliseconds(double seconds) { return std::round(seconds * 1e3) / 1e3; }

std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      return pair.substr(name.size() + 1);
  }
  return {};
}

}  // namespace rondo::serve
