// One stream of sound, and what is said in it: the messages of the WebSocket /v1/stream, apart from
// any network.
//
//   client                                        server
//   {"rate": 16000, "format": "s16"}
//   samples, in pieces of any size                {"partial": "…", "at": 1.2}
//                                                 {"final": "…", "begin": 0.4, "end": 2.1, "words":
//                                                 […]}
//   {"end": true}                                 {"final": …}, {"end": true}
//
// A partial text comes when it has changed; "at" is how many seconds of sound it is of. A final one
// comes when an utterance has ended (EndpointOptions), and at the end for what is left. Of what
// goes wrong the server says {"error": …} and closes.
//
// Errors: HttpError and InputError for messages at fault. One thread at a time, that of the
// recognizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/train/recognition/recognizer_stream.h"
#include "tools/serve/served_model.h"

namespace rondo::serve {

class SpeechStream {
 public:
  // `token`: what the first message must have; empty: nothing.
  SpeechStream(const ServedModel& served, std::string token);
  ~SpeechStream();
  SpeechStream(const SpeechStream&) = delete;
  SpeechStream& operator=(const SpeechStream&) = delete;

  // What there is to say to a message. The recognizer is the same each time.
  std::vector<std::string> take_text(Recognizer& model, std::string_view message);
  // Of a message of sound: what is to be heard, until the next call, and what there is to say when
  // it was.
  RecognizerStream::Sound take_sound(std::string_view bytes);
  std::vector<std::string> tell();
  // The client has said that it is over.
  bool has_ended() const { return has_ended_; }

 private:
  struct Hearing;

  const ServedModel& served_;
  const std::string token_;
  std::unique_ptr<Hearing> hearing_;  // from the first message on
  bool has_ended_ = false;
};

}  // namespace rondo::serve
