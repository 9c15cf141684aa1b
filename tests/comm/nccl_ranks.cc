#include "tests/comm/nccl_ranks.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "engine/reduce/device_arithmetic.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/support/support.h"

namespace rondo::test {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    return str(name_of(e.kind()), ": ", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::vector<std::string> run_nccl_ranks(int ranks, const NcclRun& run,
                                        const StandInFaults& faults) {
  reset_stand_in(faults);
  const TemporaryDirectory meeting;
  std::vector<std::string> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto store = make_file_store(meeting.path().string());
        NcclOptions o;
        o.nccl = &nccl_stand_in();
        o.device = &sim_device();
        o.arithmetic = device_arithmetic(sim_device());
        o.rank = rank;
        o.world_size = ranks;
        o.store = store.get();
        o.timeout = std::chrono::seconds(20);
        if (run.options) run.options(o);
        const auto group = make_nccl_group(o);
        run.body(rank, *group);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = message_of(std::current_exception());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  let_connections_end();
  const StandInRecord record = stand_in_record();
  for (const std::string& m : record.misuses) UNSCOPED_INFO("misuse: " << m);
  CHECK(record.misuses.empty());
  CHECK(record.destroyed + record.aborted == record.communicators);
  CHECK(record.lonely_aborts == 0);
  return failures;
}

std::string failure_of(Work work) {
  try {
    work.wait();
  } catch (...) {
    return message_of(std::current_exception());
  }
  return "";
}

Values::Values(DType dtype, int64_t count, const std::function<double(int64_t)>& value)
    : dtype_(dtype),
      count_(count),
      memory_(sim_device(), std::max<size_t>(static_cast<size_t>(count) * size_of(dtype), 1),
              "values of a test") {
  visit_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) memory_.as<T>()[i] = T(static_cast<float>(value(i)));
  });
}

double Values::operator[](int64_t i) const {
  double value = 0;
  visit_floating(dtype_, [&](auto zero) {
    value = static_cast<double>(static_cast<float>(memory_.as<decltype(zero)>()[i]));
  });
  return value;
}

}  // namespace rondo::test
