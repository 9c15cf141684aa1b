// What is read of a client's requests before anything is computed.
#include <string>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tools/serve/messages/access.h"
#include "tools/serve/messages/form.h"
#include "tools/serve/messages/stream_messages.h"

using namespace rondo;
using namespace rondo::serve;

namespace {

constexpr const char* type = "multipart/form-data; boundary=x";

std::string message_of(const std::string& content_type, const std::string& body) {
  try {
    parse_form(content_type, body);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

bool is_own(const std::string& host, const std::string& origin, bool has_token = false) {
  HttpHead head;
  head.host = host;
  head.origin = origin;
  try {
    require_own_site(head, has_token);
  } catch (const HttpError& e) {
    CHECK(e.status == 403);
    return false;
  }
  return true;
}

bool is_token(const std::string& token, const std::string& given) {
  try {
    require_token(token, given);
  } catch (const HttpError& e) {
    CHECK(e.status == 401);
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a form's parts are what was sent, whatever bytes they hold", "[serve]") {
  const std::string file("\r\n--\r\n--y\r\n\0--x\r\n--", 20);
  const std::string body =
      "before\r\n--x  \r\ncontent-disposition: FORM-DATA; name=\"a \\\"b\\\" \\c\"; "
      "filename=\"C:\\dir\\a;b.wav\"\r\nContent-Type: audio/wav\r\n\r\n" +
      file + "\r\n--x\r\nX: y\r\nContent-Disposition: form-data;name=plain\r\n\r\n\r\n--x--behind";
  const std::vector<FormPart> parts = parse_form(type, body);
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].name == "a \"b\" \\c");
  CHECK(parts[0].file_name == "C:\\dir\\a;b.wav");
  CHECK(parts[0].content == file);
  CHECK(parts[1].name == "plain");
  CHECK(!parts[1].file_name);
  CHECK(parts[1].content.empty());
  CHECK(parse_form("multipart/form-data; charset=utf-8; boundary=\"a b\"", "--a b--").empty());
}

TEST_CASE("a form that is cut off or is none is an error", "[serve]") {
  const std::string whole =
      "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nbc\r\n--x--\r\n";
  CHECK(message_of(type, whole) == "");
  // The end of the last mark is the least that has to be there.
  for (size_t n = 0; n < whole.size() - 2; ++n) {
    INFO(n);
    CHECK(message_of(type, whole.substr(0, n)) != "");
  }
  using Catch::Matchers::Contains;
  CHECK_THAT(message_of("application/json", whole), Contains("expected multipart/form-data"));
  CHECK_THAT(message_of("multipart/form-data", whole), Contains("no boundary"));
  CHECK_THAT(message_of("multipart/form-data; boundary=" + std::string(71, 'y'), whole),
             Contains("a boundary of 71 bytes"));
  CHECK_THAT(message_of("multipart/form-data; boundary=\"x", whole), Contains("does not end"));
  CHECK_THAT(message_of(type, "--x\r\nA: b\r\n\r\nc\r\n--x--"),
             Contains("part 1 of the form has no header Content-Disposition"));
  CHECK_THAT(message_of(type, "--x\r\n\r\nc\r\n--x--"), Contains("no header"));
}

TEST_CASE("pages of other sites are told from this server's", "[serve]") {
  CHECK(is_own("127.0.0.1:8080", ""));
  CHECK(is_own("127.0.0.1:8080", "http://127.0.0.1:8080"));
  CHECK(is_own("[::1]:8080", "https://[::1]:8080"));
  CHECK(is_own("localhost", ""));
  CHECK(is_own("", ""));
  CHECK(is_own("192.0.2.7:80", ""));
  CHECK(!is_own("127.0.0.1:8080", "http://127.0.0.1:8081"));
  CHECK(!is_own("127.0.0.1:8080", "http://evil.example"));
  CHECK(!is_own("127.0.0.1:8080", "null"));
  // A name that was made to mean this machine; whoever has the token may use one.
  CHECK(!is_own("evil.example:8080", "http://evil.example:8080"));
  CHECK(!is_own("localhost.evil.example", ""));
  CHECK(is_own("my.example", "https://my.example", true));
  CHECK(!is_own("my.example", "https://evil.example", true));
}

TEST_CASE("a token is the whole token", "[serve]") {
  CHECK(is_token("", "anything"));
  CHECK(is_token("abc", "abc"));
  for (const char* wrong : {"", "a", "ab", "abd", "abcc", "abcabc", "ABC"})
    CHECK(!is_token("abc", wrong));
  CHECK(bearer_token("Bearer abc") == "abc");
  CHECK(bearer_token("Basic abc") == "");
}

TEST_CASE("addresses of this machine alone", "[serve]") {
  for (const char* own : {"127.0.0.1", "127.9.8.7", "::1"}) CHECK(is_loopback(own));
  for (const char* other : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost.", ""})
    CHECK(!is_loopback(other));
}

TEST_CASE("samples come in pieces that may end within one", "[serve]") {
  std::string bytes("\x00\x80\xff\x7f\x01", 5);
  std::vector<float> samples;
  take_samples(bytes, SampleFormat::s16, samples);
  CHECK(samples == std::vector<float>{-1.0F, 32767.0F / 32768});
  CHECK(bytes == std::string("\x01", 1));
  bytes += std::string("\x00\x00\x80\x3f", 4).substr(1);
  take_samples(bytes, SampleFormat::f32, samples);
  CHECK(samples.size() == 1);
  CHECK(bytes.empty());
}
