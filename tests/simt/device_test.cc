// The sim device: poison, guard zones, and streams that wait only for what they were told to.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "bench/cases/check/check.h"
#include "kernels/devices.h"
#include "kernels/simt/sim/sim_device.h"
#include "kernels/simt/simt.h"
#include "tests/catch.h"

namespace rondo::sim {
namespace {

using Catch::Contains;

__global__ void fill_kernel(float* y, int n, float value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    y[i] = value;
  }
}
__global__ void add_kernel(float* y, const float* x, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    y[i] = x[i] + 1;
  }
}

Context on(Stream& stream) { return {Backend::sim, &sim_device(), &stream, nullptr}; }

TEST_CASE("fresh device memory is NaN in every floating type") {
  Buffer b(sim_device(), 64, "test");
  CHECK(std::isnan(b.as<float>()[0]));
  CHECK(std::isnan(b.as<double>()[7]));
  CHECK(std::isnan(static_cast<float>(b.as<bf16>()[31])));
  CHECK(reinterpret_cast<uintptr_t>(b.data()) % 256 == 0);
}

TEST_CASE("an unwritten output shows as poison") {
  Stream stream = sim_device().make_stream();
  Buffer y(sim_device(), 100 * sizeof(float), "output");
  launch(on(stream), {.kernel = "fill", .block = {32}}, fill_kernel, y.as<float>(), 99, 1.0f);
  stream.synchronize();
  CHECK(y.as<float>()[98] == 1);
  CHECK(std::isnan(y.as<float>()[99]));
}

#if !defined(__SANITIZE_ADDRESS__)  // which would stop the program at the access
TEST_CASE("a write outside an allocation is reported with kernel and purpose") {
  Stream stream = sim_device().make_stream();
  Buffer y(sim_device(), 100 * sizeof(float), "the output of a test");
  const auto error_of = [&](float* at, int n) -> std::string {
    launch(on(stream), {.kernel = "fill", .block = {32}}, fill_kernel, at, n, 1.0f);
    try {
      stream.synchronize();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error_of(y.as<float>(), 100) == "no error");
  CHECK_THAT(error_of(y.as<float>(), 101),
             Contains("fill<<<grid 1x1x1, block 32x1x1, 0 B shared>>> wrote past the end of the "
                      "400 bytes of 'the output of a test'"));
  CHECK_THAT(error_of(y.as<float>() - 1, 1), Contains("wrote before the start"));
  CHECK(error_of(y.as<float>(), 100) == "no error");
}
#else
// What a child process says on standard error while it runs `body`, and that it did not survive.
template <class F>
std::string last_words(F body) {
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(channel[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(channel[1]);
  std::string words;
  char buffer[4096];
  for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;) {
    words.append(buffer, static_cast<size_t>(n));
  }
  close(channel[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status != 0);
  return words;
}

__global__ void shared_writer(int at) {
  float* four = shared<float[4]>();
  four[at] = 1;
}

TEST_CASE("AddressSanitizer stops at a write outside device or shared memory") {
  CHECK_THAT(last_words([] {
               Stream stream = sim_device().make_stream();
               Buffer y(sim_device(), 100 * sizeof(float), "output");
               launch(on(stream), {.kernel = "fill", .block = {32}}, fill_kernel, y.as<float>(),
                      101, 1.0f);
               stream.synchronize();
             }),
             Contains("heap-buffer-overflow") && Contains("fill_kernel"));
  CHECK_THAT(last_words([] {
               Stream stream = sim_device().make_stream();
               launch(on(stream), {.kernel = "shared", .shared_bytes = 16}, shared_writer, 4);
               stream.synchronize();
             }),
             Contains("heap-buffer-overflow") && Contains("shared_writer"));
}
#endif

TEST_CASE("nothing runs before the host waits") {
  Stream stream = sim_device().make_stream();
  int ran = 0;
  stream.enqueue([&] { ++ran; });
  CHECK(ran == 0);
  stream.synchronize();
  CHECK(ran == 1);
}

// Producer on one stream, consumer on another; whether the consumer saw the product.
bool consumer_sees_product(uint64_t seed, bool with_event) {
  set_sim_options({SimOrder::forward, seed});
  const int n = 50;
  Stream first = sim_device().make_stream(), second = sim_device().make_stream();
  Buffer x(sim_device(), n * sizeof(float), "x"), y(sim_device(), n * sizeof(float), "y");
  launch(on(first), {.kernel = "fill", .block = {32}}, fill_kernel, x.as<float>(), n, 3.0f);
  Event ready = sim_device().make_event();
  ready.record(first);
  if (with_event) ready.wait(second);
  launch(on(second), {.kernel = "add", .block = {32}}, add_kernel, y.as<float>(),
         static_cast<const float*>(x.as<float>()), n);
  second.synchronize();
  set_sim_options({});
  return y.as<float>()[0] == 4 && y.as<float>()[n - 1] == 4;
}

// The opposite hazard: the input is overwritten by another stream that should wait for its reader.
bool reader_sees_old_value(uint64_t seed, bool with_event) {
  set_sim_options({SimOrder::forward, seed});
  const int n = 50;
  Stream reader = sim_device().make_stream(), writer = sim_device().make_stream();
  Buffer x(sim_device(), n * sizeof(float), "x"), y(sim_device(), n * sizeof(float), "y");
  launch(on(reader), {.kernel = "fill", .block = {32}}, fill_kernel, x.as<float>(), n, 3.0f);
  Event filled = sim_device().make_event(), read = sim_device().make_event();
  filled.record(reader);
  filled.wait(writer);
  launch(on(reader), {.kernel = "add", .block = {32}}, add_kernel, y.as<float>(),
         static_cast<const float*>(x.as<float>()), n);
  read.record(reader);
  if (with_event) read.wait(writer);
  launch(on(writer), {.kernel = "fill", .block = {32}}, fill_kernel, x.as<float>(), n, 9.0f);
  reader.synchronize();
  writer.synchronize();
  set_sim_options({});
  return y.as<float>()[0] == 4;
}

TEST_CASE("a missing event wait between streams shows for some seeds, a present one never") {
  int missed_product = 0, missed_read = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CHECK(consumer_sees_product(seed, true));
    CHECK(reader_sees_old_value(seed, true));
    missed_product += !consumer_sees_product(seed, false);
    missed_read += !reader_sees_old_value(seed, false);
  }
  CHECK(missed_product >= 3);
  CHECK(missed_read >= 3);
}

TEST_CASE("an event is done once the work before it is, and asking makes progress") {
  Stream stream = sim_device().make_stream();
  Event event = sim_device().make_event();
  CHECK(event.done());  // never recorded
  int ran = 0;
  for (int i = 0; i < 3; ++i) stream.enqueue([&] { ++ran; });
  event.record(stream);
  stream.enqueue([&] { ran += 100; });
  int asked = 0;
  while (!event.done()) REQUIRE(++asked < 100);
  CHECK(ran % 100 == 3);
  event.synchronize();
  stream.synchronize();
  CHECK(ran == 103);
}

TEST_CASE("copies and fills happen in stream order") {
  Stream stream = sim_device().make_stream();
  Buffer a(sim_device(), 16, "a"), b(sim_device(), 16, "b");
  std::vector<uint8_t> out(16);
  sim_device().fill_bytes(stream, a.data(), 7, 16);
  sim_device().copy(stream, b.data(), a.data(), 16);
  sim_device().fill_bytes(stream, a.data(), 8, 16);
  sim_device().copy(stream, out.data(), b.data(), 16);
  CHECK(out[3] == 0);
  stream.synchronize();
  CHECK(out == std::vector<uint8_t>(16, 7));
}

TEST_CASE("a failure drops what follows it, reaches waiting streams, and is told once") {
  Stream first = sim_device().make_stream(), second = sim_device().make_stream();
  Event event = sim_device().make_event();
  int ran = 0;
  first.enqueue([] { throw Error("planted"); });
  first.enqueue([&] { ++ran; });
  event.record(first);
  event.wait(second);
  second.enqueue([&] { ++ran; });
  CHECK_THROWS_WITH(second.synchronize(), "planted");
  CHECK_THROWS_WITH(first.synchronize(), "planted");
  CHECK(ran == 0);
  first.enqueue([&] { ++ran; });
  first.synchronize();
  second.synchronize();
  CHECK(ran == 1);
}

TEST_CASE("host threads share the device, each with its streams") {
  Stream producer = sim_device().make_stream();
  Event ready = sim_device().make_event();
  Buffer x(sim_device(), 40 * sizeof(float), "x");
  launch(on(producer), {.kernel = "fill", .block = {32}}, fill_kernel, x.as<float>(), 40, 2.0f);
  ready.record(producer);
  std::vector<float> seen(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      Stream stream = sim_device().make_stream();
      Buffer y(sim_device(), 40 * sizeof(float), "y");
      ready.wait(stream);
      launch(on(stream), {.kernel = "add", .block = {64}}, add_kernel, y.as<float>(),
             static_cast<const float*>(x.as<float>()), 40);
      stream.synchronize();
      seen[t] = y.as<float>()[39];
    });
  }
  for (auto& t : threads) t.join();
  CHECK(seen == std::vector<float>(4, 3.0f));
}

TEST_CASE("work that waits for something else holds up its own stream alone") {
  Stream waiting = sim_device().make_stream(), other = sim_device().make_stream();
  Event passed = sim_device().make_event();
  Buffer y(sim_device(), 2 * sizeof(float), "test");
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    set_sim_options({.seed = seed});
    bool open = false;
    int asked = 0;
    waiting.enqueue_until([&] {
      ++asked;
      return open;
    });
    launch(on(waiting), {.kernel = "fill", .block = {32}}, fill_kernel, y.as<float>(), 1, 1.0f);
    passed.record(waiting);
    launch(on(other), {.kernel = "fill", .block = {32}}, fill_kernel, y.as<float>() + 1, 1, 2.0f);
    y.as<float>()[0] = 0;
    other.synchronize();
    CHECK(y.as<float>()[1] == 2);
    for (int i = 0; i < 5; ++i) CHECK_FALSE(passed.done());
    CHECK(y.as<float>()[0] == 0);
    CHECK(asked > 0);
    open = true;
    waiting.synchronize();
    CHECK(y.as<float>()[0] == 1);
    CHECK(passed.done());
  }
  set_sim_options({});
  // A stream that failed does not go on asking.
  waiting.enqueue([] { throw Error("failed"); });
  waiting.enqueue_until([] { return false; });
  CHECK_THROWS_WITH(waiting.synchronize(), Contains("failed"));
}

TEST_CASE("rows are copied between strides") {
  for (Device* device : {&sim_device(), &cpu_device()}) {
    Stream stream = device->make_stream();
    const std::vector<uint8_t> from = {1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<uint8_t> to(9, 0);
    device->copy_rows(stream, {to.data() + 1, 3, from.data(), 4, 2, 2});
    stream.synchronize();
    CHECK(to == std::vector<uint8_t>{0, 1, 2, 0, 5, 6, 0, 0, 0});
  }
}

TEST_CASE("a device that is not there is refused with the reason") {
  std::string why;
  CHECK(find_device(DeviceKind::cpu, &why) == &cpu_device());
  CHECK(find_device(DeviceKind::sim, &why) == &sim_device());
  if (find_device(DeviceKind::cuda, &why) == nullptr) CHECK(!why.empty());
  CHECK(find_device(DeviceKind::cuda, &why, 1000) == nullptr);
  CHECK(!why.empty());
}

}  // namespace
}  // namespace rondo::sim
