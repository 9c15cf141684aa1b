// The devices of this process, by kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/device.h"

namespace rondo {

enum class Backend : uint8_t;  // kernels/base/op.h

// Which device: a kind, and among GPUs an index.
struct DeviceId {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  DeviceId(DeviceKind kind_ = DeviceKind::cpu, int index_ = 0) : kind(kind_), index(index_) {}
};

// "cpu", "sim", "cuda" (the first), "cuda:1"; nothing for any other text.
std::optional<DeviceId> device_named(std::string_view text);

// Whether this program has kernels for GPUs.
bool built_with_cuda();

// The device, or nullptr with the reason in *why: no GPU, no driver, a build without CUDA or
// without the simulator. `index` chooses among GPUs. Devices live as long as the process. Who does
// not ask whether it is there takes require_device().
Device* find_device(DeviceKind kind, std::string* why, int index = 0);

// How many GPUs this process sees, without opening any; 0 with the reason in *why.
int gpu_count(std::string* why = nullptr);

// The same as find_device(); InputError when it is not there.
Device& require_device(DeviceKind kind, int index = 0);

// What a result of these kernels on this device holds for: the device, its driver, and the kernels'
// code and libraries. One line.
std::string identity_of(const Device& device);

// The kernels that run on such a device.
Backend backend_of(DeviceKind kind);

namespace detail {
extern const char* const device_code;  // a hash of what was compiled for GPUs; in builds with CUDA
}  // namespace detail

}  // namespace rondo
