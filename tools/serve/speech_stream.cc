#include "tools/serve/speech_stream.h"

#include <numeric>
#include <optional>
#include <utility>

#include "engine/data/audio/resample.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "tools/serve/messages/access.h"
#include "tools/serve/messages/stream_messages.h"

namespace rondo::serve {
namespace {

// A resampler holds back sound of 64 over this divisor of both rates, in seconds.
constexpr int32_t least_common_divisor = 25;

std::optional<Resampler> resampler_between(int32_t given, int32_t wanted) {
  if (given == wanted) return std::nullopt;
  if (std::gcd(given, wanted) < least_common_divisor)
    fail_input("'rate' is ", given, ", which has too little in common with the model's ", wanted,
               "; expected that, or a usual rate: 16000, 44100, 48000");
  return Resampler(given, wanted);
}

std::string final_message(const StreamedTranscript& t) {
  Json words = Json::array();
  for (const TimedText::Token& word : t.words)
    words.push_back(Json::object({{"text", word.text},
                                  {"begin", milliseconds(word.begin)},
                                  {"end", milliseconds(word.end)},
                                  {"probability", word.probability}}));
  return Json::object({{"final", t.text},
                       {"begin", milliseconds(t.begin)},
                       {"end", milliseconds(t.end)},
                       {"words", std::move(words)}})
      .dump_replacing();
}

}  // namespace

struct SpeechStream::Hearing {
  Hearing(Recognizer& model, const ServedModel& served, const StreamStart& start_)
      : start(start_),
        resampler(resampler_between(start_.rate, served.features().rate)),
        stream(model, served.options().chunk_seconds,
               {.endpoint = served.options().endpoint,
                .decoder = served.decoder_for(start_.hot_words)}) {
    if (resampler) resampled.emplace(*resampler);
  }

  const StreamStart start;
  const std::optional<Resampler> resampler;
  std::optional<ResamplerStream> resampled;
  RecognizerStream stream;
  std::string bytes;  // of a sample that is not whole
  std::vector<float> samples, at_rate;
  int64_t heard = 0;  // samples
  std::string told;   // the last partial text
};

SpeechStream::SpeechStream(const ServedModel& served, std::string token)
    : served_(served), token_(std::move(token)) {}
SpeechStream::~SpeechStream() = default;

std::vector<std::string> SpeechStream::take_text(Recognizer& model, std::string_view message) {
  std::vector<std::string> messages;
  if (!hearing_) {
    const StreamStart start = parse_stream_start(message);
    require_token(token_, start.token);
    hearing_ = std::make_unique<Hearing>(model, served_, start);
    return messages;
  }
  require_stream_end(message);
  Hearing& h = *hearing_;
  if (!h.bytes.empty()) fail_input("the sound ends within a sample");
  if (h.resampled) {
    h.at_rate.clear();
    h.resampled->finish(h.at_rate);
    h.stream.accept(h.at_rate);
    messages = tell();
  }
  const StreamedTranscript last = h.stream.finish();
  for (const StreamedTranscript& t : h.stream.ended()) messages.push_back(final_message(t));
  if (!last.text.empty()) messages.push_back(final_message(last));
  messages.push_back(Json::object({{"end", true}}).dump());
  has_ended_ = true;
  return messages;
}

RecognizerStream::Sound SpeechStream::take_sound(std::string_view bytes) {
  if (!hearing_)
    fail_input(
        "there is sound before the first message, expected {\"rate\": 16000, \"format\": "
        "\"s16\"} first");
  Hearing& h = *hearing_;
  h.bytes += bytes;
  take_samples(h.bytes, h.start.format, h.samples);
  h.heard += static_cast<int64_t>(h.samples.size());
  require_samples(h.samples, h.start.rate);
  if (!h.resampled) return {&h.stream, h.samples};
  h.at_rate.clear();
  h.resampled->accept(h.samples, h.at_rate);
  return {&h.stream, h.at_rate};
}

std::vector<std::string> SpeechStream::tell() {
  Hearing& h = *hearing_;
  std::vector<std::string> messages;
  for (const StreamedTranscript& t : h.stream.ended()) messages.push_back(final_message(t));
  if (!h.stream.ended().empty()) h.told.clear();
  std::string text = h.stream.partial().text;
  if (text == h.told) return messages;
  h.told = std::move(text);
  const double at = static_cast<double>(h.heard) / h.start.rate;
  messages.push_back(
      Json::object({{"partial", h.told}, {"at", milliseconds(at)}}).dump_replacing());
  return messages;
}

}  // namespace rondo::serve
