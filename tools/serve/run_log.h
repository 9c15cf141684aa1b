// The log of a training run, for who watches it.
//
// Errors: HttpError. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "tools/serve/messages/http_message.h"

namespace rondo::serve {

// {"from": 0, "next": 4711, "entries": [{…}, …]}: the entries of RUN/log.jsonl from byte `from` on,
// as many as a megabyte holds. `next` is where to go on. A log that has become shorter is another
// run's, and is told from its beginning. What is no JSON, a line that is being written among that,
// is left out, or waits.
HttpReply run_log_reply(const std::string& folder, std::string_view from);

}  // namespace rondo::serve
