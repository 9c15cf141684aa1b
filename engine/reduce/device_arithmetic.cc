#include "engine/reduce/device_arithmetic.h"

#include "kernels/base/dispatch.h"
#include "kernels/cast/cast.h"

namespace rondo {

DeviceArithmetic device_arithmetic(Device& device) {
  RONDO_CHECK(device.kind() != DeviceKind::cpu, "no kernels are enqueued on a cpu");
  const Backend backend = device.kind() == DeviceKind::sim ? Backend::sim : Backend::cuda;
  const auto on = [&device, backend](Stream& stream) {
    return Context{backend, &device, &stream, nullptr};
  };
  return {[on](Stream& stream, const TensorView& x, const TensorView& y) {
            AccumulateArgs a;
            a.x = x;
            a.y = y;
            run(on(stream), a);
          },
          [on](Stream& stream, const TensorView& x, const TensorView& y) {
            CastArgs a;
            a.x = x;
            a.y = y;
            run(on(stream), a);
          }};
}

}  // namespace rondo
