#include <cmath>

#include "engine/layers/layers.h"
#include "kernels/base/error.h"

namespace rondo::layers {

ValueId conv(Graph& g, ValueId x, const std::string& name, const ConvOptions& o) {
  RONDO_CHECK(o.channels >= 1 && o.kernel >= 1 && o.stride >= 1 && o.dilation >= 1, "conv '", name,
              "': ", o.channels, " channels, kernel ", o.kernel, ", stride ", o.stride,
              ", dilation ", o.dilation);
  const int64_t in = g.shape(x).cols;
  const int from = g.shape(x).level;
  const int to = o.stride == 1 ? from : g.add_level(from, o.stride);
  const int64_t span = int64_t{o.dilation} * (o.kernel - 1) + 1;
  const double bound = 1 / std::sqrt(static_cast<double>(in * o.kernel));
  const ValueId w =
      g.add_parameter(name + ".weight", o.channels, in * o.kernel, {Init::uniform, bound});
  g.value(w).taps = o.kernel;
  const ValueId b = g.add_parameter(name + ".bias", 1, o.channels, {Init::constant, 0});
  return g.add_node("conv", {x, g.as_compute(w), b, no_value, no_value},
                    {{"kernel", int64_t{o.kernel}},
                     {"stride", int64_t{o.stride}},
                     {"dilation", int64_t{o.dilation}},
                     {"left", int64_t{conv_left(o.context, span)}},
                     {"from", int64_t{from}},
                     {"to", int64_t{to}}})[0];
}

}  // namespace rondo::layers
