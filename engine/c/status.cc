#include <rondo/version.h>

#include <exception>
#include <new>

#include "engine/c/handles.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/device.h"

namespace rondo::c {
namespace {

constexpr size_t most_quoted = 80;
thread_local std::string message;

rondo_status failed(rondo_status status, const char* what) noexcept {
  try {
    message = what;
  } catch (...) {  // no memory for it: the status says enough
    message.clear();
  }
  return status;
}

}  // namespace

rondo_status guarded(const std::function<void()>& work) {
  try {
    work();
    return RONDO_OK;
  } catch (const OutOfMemory& e) {
    return failed(RONDO_NO_MEMORY, e.what());
  } catch (const InputError& e) {
    return failed(RONDO_INVALID, e.what());
  } catch (const std::bad_alloc&) {
    return failed(RONDO_NO_MEMORY, "there is not enough memory");
  } catch (const std::exception& e) {
    return failed(RONDO_FAILED, e.what());
  } catch (const Stopped&) {
    return failed(RONDO_STOPPED, "the caller's function has stopped it");
  } catch (...) {
    return failed(RONDO_FAILED, "something was thrown that is no exception of C++'s library");
  }
}

void require_given(const void* argument, const char* name) {
  if (argument == nullptr) fail_input(name, " is NULL");
}

DeviceId device_of(const char* name) {
  if (!name) return DeviceKind::cpu;
  const auto device = device_named(name);
  if (!device) {
    fail_input("device '", printable_start(name, most_quoted), "', expected cpu, cuda or cuda:1");
  }
  return *device;
}

Matrix matrix_of(const rondo_matrix& m, const char* name) {
  if (m.rows < 0 || m.columns < 1 || m.columns > most_columns) {
    fail_input(name, ": [", m.rows, ", ", m.columns, "], expected rows of 1 to ", most_columns,
               " columns");
  }
  if (m.rows > 0) require_given(m.data, name);
  if (m.rows > most_numbers / m.columns) {
    fail_input(name, ": ", m.rows, " rows of ", m.columns, " columns are more than 2^40 numbers");
  }
  const int64_t down = m.row_stride != 0 ? m.row_stride : m.columns;
  const int64_t across = m.column_stride != 0 ? m.column_stride : 1;
  Matrix dense(m.rows, static_cast<int32_t>(m.columns));
  for (int64_t i = 0; i < m.rows; ++i) {
    const float* from = m.data + i * down;
    float* to = dense.row(i);
    if (across == 1) {
      std::copy_n(from, m.columns, to);
    } else {
      for (int64_t j = 0; j < m.columns; ++j) to[j] = from[j * across];
    }
  }
  return dense;
}

}  // namespace rondo::c

const char* rondo_message(void) { return rondo::c::message.c_str(); }
const char* rondo_version(void) { return RONDO_VERSION; }
