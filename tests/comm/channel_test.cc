// Channels over a pipe made of strings: frames cut anywhere, and frames that no rank sends.
#include "comm/channels/channel.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/comm/string_pipe.h"
#include "tests/comm/transport_contract.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using namespace channels;
using Catch::Matchers::Contains;

TEST_CASE("Channels move messages through pipes that take any number of bytes at a time",
          "[channel]") {
  const size_t at_once = GENERATE(1u, 7u, 31u, 33u, 100'000u);
  const auto a_to_b = std::make_shared<std::string>(), b_to_a = std::make_shared<std::string>();
  const auto a =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(b_to_a, a_to_b, at_once), 0, 1);
  const auto b =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(a_to_b, b_to_a, at_once), 1, 0);
  std::vector<int> sent(1000), got(1000), none, few{4, 5, 6}, few_got(3);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int>(i);
  std::vector<Work> works;
  const auto post = [&](auto& channel, Direction direction, Tag tag, std::vector<int>& v) {
    works.push_back(channel->post(direction, tag, bytes_of(v).data(), 4 * v.size(), within(20s)));
  };
  post(a, Direction::send, 1, sent);
  post(b, Direction::recv, 2, none);
  post(b, Direction::recv, 1, got);
  post(a, Direction::recv, 1, few_got);
  post(b, Direction::send, 1, few);
  post(a, Direction::send, 2, none);
  for (int i = 0; i < 20'000 && (a->has_work() || b->has_work()); ++i) {
    a->progress();
    b->progress();
  }
  for (Work& w : works) {
    REQUIRE(w.poll());
    CHECK(!w.error());
  }
  CHECK(got == sent);
  CHECK(few_got == few);
}

template <class T>
void check_adding(Landing landing, size_t at_once) {
  const auto a_to_b = std::make_shared<std::string>(), b_to_a = std::make_shared<std::string>();
  const auto a =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(b_to_a, a_to_b, at_once), 0, 1);
  const auto b =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(a_to_b, b_to_a, at_once), 1, 0);
  std::vector<T> sent(1003), got(1003), expected(1003);
  for (size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<T>(i) / 3;
    got[i] = static_cast<T>(i) * 7;
    expected[i] = got[i] + sent[i];
  }
  const auto bytes = [](std::vector<T>& v) { return std::as_writable_bytes(std::span(v)); };
  Work recv =
      b->post(Direction::recv, 1, bytes(got).data(), bytes(got).size(), within(20s), landing);
  Work send = a->post(Direction::send, 1, bytes(sent).data(), bytes(sent).size(), within(20s));
  for (int i = 0; i < 20'000 && (a->has_work() || b->has_work()); ++i) {
    a->progress();
    b->progress();
  }
  recv.wait();
  send.wait();
  CHECK(got == expected);
}

TEST_CASE("What arrives is added where that is asked for, wherever elements are cut", "[channel]") {
  const size_t at_once = GENERATE(1u, 3u, 7u, 33u, 1000u, 100'000u);
  check_adding<float>(Landing::add_f32, at_once);
  check_adding<double>(Landing::add_f64, at_once);
}

TEST_CASE("Frames that no rank sends are errors", "[channel]") {
  Frame frame{FrameKind::data, 1, 2, 3};
  const auto parse = [&] { return parse_frame(std::as_bytes(std::span(&frame, 1))); };
  CHECK(parse().size == 3);
  frame.size = largest_message + 1;
  CHECK_THROWS_AS(parse(), Error);
  frame = {static_cast<FrameKind>(9), 1, 2, 0};
  CHECK_THROWS_AS(parse(), Error);
  frame = {static_cast<FrameKind>(0), 1, 2, 0};
  CHECK_THROWS_AS(parse(), Error);
  frame = {FrameKind::bye, 1, 2, 3};
  CHECK_THROWS_AS(parse(), Error);
  frame = {FrameKind::abort, 1, 2, longest_reason + 1};
  CHECK_THROWS_AS(parse(), Error);
}

TEST_CASE("A channel that hears what its transport does not know is lost", "[channel]") {
  const auto in = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  const auto channel =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(in, out, 100), 0, 1);
  std::vector<int> got(10);
  Work work = channel->post(Direction::recv, 1, bytes_of(got).data(), 40, within(20s));
  const Frame frame{FrameKind::bye, 0, 0, 0};
  in->append(reinterpret_cast<const char*>(&frame), sizeof frame);
  channel->progress();
  REQUIRE(work.poll());
  CHECK_THAT(comm_error_of(work).what(), Contains("rank 1 is lost: a frame of kind 7"));
}

// What is half written when its operation is withdrawn keeps its end, so that what comes after it
// is understood; and the memory is not looked at again.
TEST_CASE("A message that is withdrawn while it is written leaves the stream whole", "[channel]") {
  const auto a_to_b = std::make_shared<std::string>(), b_to_a = std::make_shared<std::string>();
  auto pipe = std::make_unique<StringPipe>(b_to_a, a_to_b, 1000);
  StringPipe* const narrow = pipe.get();
  const auto a = std::make_shared<StringChannel>(std::move(pipe), 0, 1);
  const auto b =
      std::make_shared<StringChannel>(std::make_unique<StringPipe>(a_to_b, b_to_a, 1000), 1, 0);
  std::vector<int> got(1000), sent(1000, 7), later(10), more(10, 9);
  Work recv = b->post(Direction::recv, 1, bytes_of(got).data(), 4000, within(20s));
  Work next = b->post(Direction::recv, 2, bytes_of(later).data(), 40, within(20s));
  a->progress();
  narrow->room = 1500;
  {
    Work send = a->post(Direction::send, 1, bytes_of(sent).data(), 4000, within(20s));
    CHECK(!send.poll());
  }  // gives up: the other side does not answer
  CHECK(a->gave_up == 1);
  std::fill(sent.begin(), sent.end(), -1);
  narrow->room = StringPipe::plenty;
  Work last = a->post(Direction::send, 2, bytes_of(more).data(), 40, within(20s));
  for (int i = 0; i < 1000 && (a->has_work() || b->has_work()); ++i) {
    a->progress();
    b->progress();
  }
  recv.wait();
  next.wait();
  last.wait();
  CHECK(got == std::vector<int>(1000, 7));
  CHECK(later == more);
}

}  // namespace
}  // namespace rondo
