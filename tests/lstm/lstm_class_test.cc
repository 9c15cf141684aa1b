// The classes of calls that trials decide for.
#include <memory>

#include "kernels/lstm/lstm_class.h"
#include "tests/catch.h"

using namespace rondo;

TEST_CASE("a class of LSTM calls is a text, and is read from no other one") {
  const LstmClass plain = lstm_class(DType::bf16, {2, 80, 512, 0}, 17);
  CHECK(plain.text() == "bf16 h512 d2 n32");
  const LstmClass projected = lstm_class(DType::f32, {1, 80, 7, 3}, 1);
  CHECK(projected.text() == "f32 h7 p3 d1 n1");
  for (const LstmClass& c : {plain, projected}) {
    const std::optional<LstmClass> read = LstmClass::parse(c.text());
    REQUIRE(read);
    CHECK(read->text() == c.text());
    CHECK(read->compute == c.compute);
    CHECK(read->sequences == c.sequences);
  }
  for (const char* text :
       {"", "bf16", "bf16 h512 d2", "bf16 h512 d2 n31", "bf16 h512 d3 n32", "bf16 h0 d2 n32",
        "f16 h512 d2 n32", "bf16 h512 p0 d2 n32", "bf16  h512 d2 n32", "bf16 h512 d2 n32 ",
        "bf16 h-5 d2 n32", "bf16 h512 d2 n32 n32", "bf16 d2 h512 n32", "bf16 h99999999 d2 n32"}) {
    INFO(text);
    CHECK_FALSE(LstmClass::parse(text));
  }
}

TEST_CASE("calls are of a class whatever their input is; one direction of two is of none") {
  LstmForwardArgs forward;
  forward.dims = {2, 3, 16, 0};
  forward.layout.capacity = {40, 9, 5};
  forward.x.dtype = DType::bf16;
  CHECK(lstm_class_of<LstmForwardArgs>(&forward) == "bf16 h16 d2 n8");
  forward.dims.input = 30;
  CHECK(lstm_class_of<LstmForwardArgs>(&forward) == "bf16 h16 d2 n8");
  LstmBackwardArgs backward;
  backward.dims = forward.dims;
  backward.layout.capacity = forward.layout.capacity;
  backward.dy.dtype = DType::f32;
  CHECK(lstm_class_of<LstmBackwardArgs>(&backward) == "f32 h16 d2 n8");
  backward.run = LstmRun::second;
  CHECK(lstm_class_of<LstmBackwardArgs>(&backward).empty());
}
