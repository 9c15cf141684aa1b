// A request of HTTP and its reply, apart from any network.
//
// Errors are of the form that OpenAI's clients read:
//   {"error": {"message": "…", "type": "invalid_request_error", "param": "file", "code": null}}
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::serve {

// What is known before the body arrives. Names of headers are the members'.
struct HttpHead {
  std::string method, path, query;
  std::string host, origin, authorization, content_type;
  int64_t content_length = -1;  // not given
  bool upgrades = false;        // to a WebSocket
};

struct HttpRequest : HttpHead {
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string type, body;
  int retry_after = 0;     // seconds; 0: the reply has no such header
  std::string allow = {};  // the method that is expected; empty: no such header
};

// A request that is at fault, or comes at the wrong time: the status says which.
class HttpError : public InputError {
 public:
  HttpError(int status_, const std::string& message, std::string param_ = {},
            std::string code_ = {})
      : InputError(message), status(status_), param(std::move(param_)), code(std::move(code_)) {}

  const int status;
  const std::string param, code;  // empty: null
  std::string allow;              // of 405: the method that is expected
};

// {"error": …} alone.
std::string error_text(const HttpError& error);
HttpReply reply_of(const HttpError& error);
HttpReply json_reply(std::string body);

// Times in messages have three decimals.
double milliseconds(double seconds);

// Of "from=12&to=": a parameter's text as it stands, empty where there is none.
std::string_view query_value(std::string_view query, std::string_view name);

}  // namespace rondo::serve
