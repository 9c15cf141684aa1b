// POST /v1/audio/transcriptions, as OpenAI's clients call it, and POST /v1/images/transcriptions.
//
// Errors: HttpError, and InputError for a form or a file that is at fault. One thread at a time for
// each recognizer.
#pragma once

#include <functional>
#include <optional>

#include "engine/io/json.h"
#include "engine/train/recognition/recognizer.h"
#include "tools/serve/messages/http_message.h"
#include "tools/serve/served_model.h"

namespace rondo::serve {

// Takes an event of a reply that comes in pieces. False: nobody listens any more.
using Listener = std::function<bool(const Json&)>;

// Nothing, where the request asks for events: all of them went to the listener.
std::optional<HttpReply> transcribe_sound(const ServedModel& served, Recognizer& model,
                                          const HttpRequest& request, const Listener& listener);
HttpReply transcribe_image(const ServedModel& served, Recognizer& model,
                           const HttpRequest& request);

}  // namespace rondo::serve
