// What clients of `rondo serve` send: forms with files, and the messages of streams.
#include <algorithm>
#include <string>

#include "kernels/base/error.h"
#include "tests/fuzz/targets.h"
#include "tools/serve/messages/form.h"
#include "tools/serve/messages/stream_messages.h"

using namespace rondo;

namespace {

// The first line is the Content-Type.
void run_form(std::span<const std::byte> bytes) {
  const std::string_view all = text_of(bytes);
  const size_t end = std::min(all.find('\n'), all.size());
  const std::string_view body = all.substr(std::min(end + 1, all.size()));
  size_t content = 0;
  for (const serve::FormPart& part : serve::parse_form(all.substr(0, end), body)) {
    require(part.content.empty() ||
                (part.content.data() >= body.data() &&
                 part.content.data() + part.content.size() <= body.data() + body.size()),
            "a part lies outside the body");
    content += part.content.size();
  }
  require(content <= body.size(), "parts overlap");
}

std::vector<std::string> form_seeds() {
  const std::string head = "Content-Disposition: form-data; name=";
  return {
      "multipart/form-data; boundary=x\n--x\r\n" + head +
          "\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF--x\r\n-\r\n--x\r\n" +
          head + "model\r\n\r\nrun\r\n--x--\r\n",
      "Multipart/Form-Data; charset=utf-8; boundary=\"a b\"\nbefore\r\n--a b  \r\n" + head +
          "\"a\\\"b\"\r\n\r\n\r\n--a b--behind",
      "multipart/form-data; boundary=--\n------",
  };
}

void run_stream_start(std::span<const std::byte> bytes) {
  const serve::StreamStart start = serve::parse_stream_start(text_of(bytes));
  require(start.rate >= 8000 && start.rate <= 192000, "a rate out of range");
  for (const std::string& phrase : start.hot_words) require(!phrase.empty(), "an empty phrase");
}

std::vector<std::string> stream_start_seeds() {
  return {R"({"rate":16000})",
          R"({"rate": 48000, "format": "f32", "hot_words": ["one", "two words"], "token": "t"})"};
}

void run_stream_end(std::span<const std::byte> bytes) { serve::require_stream_end(text_of(bytes)); }

// Little can be changed in it.
std::vector<std::string> stream_end_seeds() {
  return {R"({"end":true})", "  {\n  \"end\"  :  true  }  ",
          "{\t\"end\"\t:\ttrue\t}\n\n\n\n\n\n\n\n\n\n"};
}

}  // namespace

std::span<const FuzzTarget> serve_targets() {
  static constexpr FuzzTarget targets[] = {
      {"form", run_form, form_seeds},
      {"stream_start", run_stream_start, stream_start_seeds},
      {"stream_end", run_stream_end, stream_end_seeds},
  };
  return targets;
}
