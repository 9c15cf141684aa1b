// Figures that can be worked out by hand.
#include "engine/train/recognition/regression_errors.h"

#include <cmath>

#include "tests/catch.h"

using namespace rondo;

namespace {

void add(RegressionErrors& errors, std::vector<float> target, std::vector<float> answer) {
  errors.add(target, answer);
}

}  // namespace

TEST_CASE("MAE, RMSE and R2 of one number") {
  RegressionErrors errors;
  CHECK(std::isnan(errors.all().mae));
  add(errors, {1}, {2});
  add(errors, {2}, {2});
  add(errors, {6}, {3});
  const RegressionErrors::Figures f = errors.all();
  CHECK(errors.count() == 3);
  CHECK(f.mae == Approx(4.0 / 3));
  CHECK(f.rmse == Approx(std::sqrt(10.0 / 3)));
  CHECK(f.r2 == Approx(1 - 10.0 / 14));  // around the mean, 3: 4 + 1 + 9
}

TEST_CASE("R2 is 0 for the mean, and far targets take nothing from it") {
  RegressionErrors mean, near;
  for (const float target : {10001.f, 10002.f, 10003.f}) {
    add(mean, {target}, {10002});
    add(near, {target}, {target + 0.5f});
  }
  CHECK(mean.all().r2 == Approx(0).margin(1e-12));
  CHECK(near.all().r2 == Approx(1 - 0.75 / 2));
}

TEST_CASE("equal targets have no R2") {
  RegressionErrors errors;
  add(errors, {4}, {3});
  add(errors, {4}, {5});
  CHECK(errors.all().mae == 1);
  CHECK(errors.all().rmse == 1);
  CHECK(std::isnan(errors.all().r2));
}

TEST_CASE("several numbers count by column, and as their mean") {
  RegressionErrors errors;
  add(errors, {0, 10}, {0, 16});
  add(errors, {2, 30}, {2, 22});
  const auto columns = errors.columns();
  REQUIRE(columns.size() == 2);
  CHECK(columns[0].mae == 0);
  CHECK(columns[0].r2 == 1);
  CHECK(columns[1].mae == 7);
  CHECK(columns[1].rmse == Approx(std::sqrt(50.0)));
  CHECK(columns[1].r2 == Approx(0.5));  // 100 around the mean of 200
  CHECK(errors.all().mae == Approx(3.5));
  CHECK(errors.all().rmse == Approx(5));
  CHECK(errors.all().r2 == Approx(0.75));
}
