#include "tools/serve/messages/stream_messages.h"

#include <cstring>

#include "engine/io/json.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::serve {
namespace {

constexpr int32_t least_rate = 8000, most_rate = 192000;
constexpr size_t most_hot_words = 1000, most_phrase_bytes = 200;

Json parse_message(std::string_view text, const char* expected) {
  constexpr JsonLimits limits{.depth = 4, .unique_names = true};
  try {
    Json message = Json::parse(text, limits);
    if (message.is_object()) return message;
    fail_input("the message is ", message.type_name(), ", expected ", expected);
  } catch (const JsonError& e) {
    fail_input("the message '", printable_start(text, 60), "' ", e.what(), ", expected ", expected);
  }
}

int32_t rate_of(const Json& value) {
  if (!value.is_unsigned() || value.get<uint64_t>() < static_cast<uint64_t>(least_rate) ||
      value.get<uint64_t>() > static_cast<uint64_t>(most_rate))
    fail_input("'rate' is ", printable_start(value.dump_replacing(), 40),
               ", expected samples in a second, ", least_rate, " to ", most_rate);
  return value.get<int32_t>();
}

std::string text_of(const Json& value, const char* name) {
  if (!value.is_string()) fail_input("'", name, "' is ", value.type_name(), ", expected a string");
  return value.get<std::string>();
}

std::vector<std::string> phrases_of(const Json& value) {
  if (!value.is_array()) fail_input("'hot_words' is ", value.type_name(), ", expected a list");
  if (value.size() > most_hot_words)
    fail_input("'hot_words' has ", value.size(), " phrases, expected at most ", most_hot_words);
  std::vector<std::string> phrases;
  for (const Json& phrase : value.elements()) {
    phrases.push_back(text_of(phrase, "hot_words"));
    if (phrases.back().empty() || phrases.back().size() > most_phrase_bytes)
      fail_input("a phrase of 'hot_words' has ", phrases.back().size(), " bytes, expected 1 to ",
                 most_phrase_bytes);
  }
  return phrases;
}

}  // namespace

StreamStart parse_stream_start(std::string_view text) {
  const Json message = parse_message(text, "{\"rate\": 16000, \"format\": \"s16\"} first");
  StreamStart start;
  for (const auto& [name, value] : message.members()) {
    if (name == "rate") {
      start.rate = rate_of(value);
    } else if (name == "format") {
      const std::string format = text_of(value, "format");
      if (format != "s16" && format != "f32")
        fail_input("'format' is '", printable_start(format, 40), "', expected s16 or f32");
      start.format = format == "s16" ? SampleFormat::s16 : SampleFormat::f32;
    } else if (name == "hot_words") {
      start.hot_words = phrases_of(value);
    } else if (name == "token") {
      start.token = text_of(value, "token");
    } else {
      fail_input("the first message has '", printable_start(name, 40),
                 "', expected rate, format, hot_words and token");
    }
  }
  if (start.rate == 0) fail_input("the first message has no 'rate', expected samples in a second");
  return start;
}

void require_stream_end(std::string_view text) {
  const Json message = parse_message(text, "{\"end\": true}");
  const Json* end = message.find("end");
  if (message.size() != 1 || !end || !end->is_boolean() || !end->get<bool>())
    fail_input("the message '", printable_start(message.dump_replacing(), 60),
               "' comes behind the first, expected {\"end\": true}");
}

void take_samples(std::string& bytes, SampleFormat format, std::vector<float>& samples) {
  const size_t each = format == SampleFormat::s16 ? sizeof(int16_t) : sizeof(float);
  const size_t count = bytes.size() / each;
  samples.resize(count);
  if (format == SampleFormat::f32) {
    std::memcpy(samples.data(), bytes.data(), count * each);
  } else {
    for (size_t i = 0; i < count; ++i) {
      int16_t value = 0;
      std::memcpy(&value, bytes.data() + i * each, each);
      samples[i] = static_cast<float>(value) / 32768;
    }
  }
  bytes.erase(0, count * each);
}

}  // namespace rondo::serve
