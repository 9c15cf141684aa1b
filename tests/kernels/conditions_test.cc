// What `rondo info --kernels` says that a variant asks for, against what it does ask for.
#include <string>

#include "kernels/base/dispatch.h"
#include "kernels/base/gpu/recent_launches.h"
#include "kernels/conditions.h"
#include "kernels/ctc/ctc.h"
#include "kernels/lstm/lstm.h"
#include "kernels/lstm/lstm_conditions.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"

namespace rondo {
namespace {

using Catch::Contains;

const Variant& find_variant(std::string_view op, std::string_view name) {
  for (const auto variants : all_ops()) {
    for (const Variant& v : variants) {
      if (v.op == op && v.name == name && v.backend == Backend::sim) return v;
    }
  }
  throw Error("no such variant");
}

bool takes_lstm(const char* variant, int64_t hidden, DType dtype, int64_t projection = 0) {
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  LstmForwardArgs forward;
  forward.dims = {1, 4, hidden, projection};
  forward.layout.capacity = {8, 4, 2};
  forward.x.dtype = dtype;
  return find_variant("lstm_forward", variant).accepts(context, &forward);
}

std::string words(const char* op, const char* variant) {
  return std::string(condition_of(find_variant(op, variant)));
}

}  // namespace

TEST_CASE("every variant says what it asks for") {
  for (const auto variants : all_ops()) {
    for (const Variant& v : variants) {
      INFO(v.op << " " << name_of(v.backend) << ":" << v.name);
      CHECK(!condition_of(v).empty());
      CHECK((condition_of(v) == "always") == (v.accepts == nullptr));
    }
  }
}

TEST_CASE("the LSTM's variants take what their conditions say, to the last H") {
  CHECK_THAT(words("lstm_forward", "cluster_split"),
             Contains("bf16, or f32 up to H = 256; H <= 512; no projection"));
  CHECK(takes_lstm("cluster_split", 512, DType::bf16));
  CHECK_FALSE(takes_lstm("cluster_split", 513, DType::bf16));
  CHECK(takes_lstm("cluster_split", 256, DType::f32));
  CHECK_FALSE(takes_lstm("cluster_split", 257, DType::f32));
  CHECK_FALSE(takes_lstm("cluster_split", 512, DType::bf16, 8));

  CHECK_THAT(words("lstm_backward", "grid"), Contains("f32 or bf16; H <= 1024; no projection"));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CHECK(takes_lstm("grid", 1024, dtype));
    CHECK_FALSE(takes_lstm("grid", 1025, dtype));
    CHECK_FALSE(takes_lstm("grid", 1024, dtype, 8));
  }
  CHECK_THAT(words("lstm_forward", "portable"), Contains("f32 or bf16; any H"));
  CHECK(takes_lstm("portable", 5000, DType::bf16, 8));
  CHECK_FALSE(takes_lstm("portable", 5000, DType::f64));
}

TEST_CASE(
    "the words for the LSTM's variants come from their table, and differ where the simulator "
    "does") {
  const auto words_on = [](const char* variant, Backend backend) {
    return lstm_conditions_in_words(*find_lstm_conditions(variant), backend);
  };
  CHECK(words_on("portable", Backend::cuda) == "f32 or bf16; any H; sm_80");
  CHECK(words_on("grid", Backend::cuda) ==
        "f32 or bf16; H <= 1024; no projection; sm_80; all blocks resident; polls");
  CHECK_THAT(words_on("grid_cluster", Backend::cuda),
             Contains("bf16; H 513 to 1024; no projection"));
  CHECK_THAT(words_on("grid_cluster", Backend::sim), Contains("bf16; H <= 1024; no projection"));
  for (const LstmConditions& c : lstm_conditions) {
    CHECK(words("lstm_forward", c.variant) == lstm_conditions_in_words(c, Backend::sim));
    CHECK(words("lstm_backward", c.variant) == lstm_conditions_in_words(c, Backend::sim));
  }
}

TEST_CASE("every variant may be preferred, and what declines is told") {
  for (const auto variants : all_ops()) {
    for (const Variant& v : variants) {
      INFO(v.op << " " << name_of(v.backend) << ":" << v.name);
      prefer_variant(v.op, v.name, v.backend);
      prefer_variant(v.op, "");
    }
  }
  CHECK_THROWS_WITH(prefer_variant("ctc", "fats"),
                    Contains("op 'ctc' has no variant 'fats'; it has ref, "));
  CHECK_THROWS_WITH(prefer_variant("ctc", "generic", Backend::sim),
                    "op 'ctc' has no variant 'generic' for sim; it has fast, log_space, "
                    "without_stages");
  CHECK_THROWS_WITH(prefer_variant("ctk", "fast"), Contains("no op is called 'ctk'; the ops are "));

  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  LstmForwardArgs forward;
  forward.dims = {1, 4, 8, 0};
  forward.layout.capacity = {8, 4, 2};
  forward.x.dtype = DType::f32;
  const auto chosen = [&] {
    return std::string_view(select_variant(context, "lstm_forward", &forward).name);
  };
  prefer_variant("lstm_forward", "grid_cluster", Backend::sim);
  CHECK(preferred_in_vain().empty());
  CHECK(chosen() == "portable");
  REQUIRE(preferred_in_vain().size() == 1);
  CHECK(preferred_in_vain().front()->name == std::string_view("grid_cluster"));
  forward.x.dtype = DType::bf16;
  CHECK(chosen() == "grid_cluster");
  CHECK(preferred_in_vain().empty());
  prefer_variant("lstm_forward", "");
  CHECK(chosen() == "portable");
}

TEST_CASE("the last launches are listed, the newest first, repeats once") {
  note_launch({.kernel = "first", .grid = {3}, .block = {64}, .shared_bytes = 16});
  for (int i = 0; i < 5; ++i) note_launch({.kernel = "second", .block = {32}});
  note_launch({.kernel = "second", .block = {64}});
  note_recorded_launch();
  note_recorded_launch();
  const std::string start =
      "recorded work; second<<<grid 1x1x1, block 64x1x1, 0 B shared>>>; "
      "second<<<grid 1x1x1, block 32x1x1, 0 B shared>>>; "
      "first<<<grid 3x1x1, block 64x1x1, 16 B shared>>>";
  CHECK_THAT(recent_launches(), Catch::StartsWith(start));
  for (unsigned i = 0; i < 100; ++i) note_launch({.kernel = "many", .grid = {i + 1}});
  const std::string many = recent_launches();
  CHECK_THAT(many, Catch::StartsWith("many<<<grid 100x") && Contains("many<<<grid 89x") &&
                       !Contains("many<<<grid 88x"));
}

}  // namespace rondo
