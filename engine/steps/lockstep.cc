#include "engine/steps/lockstep.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

double element(const TensorView& v, int64_t i) {
  switch (v.dtype) {
    case DType::f32:
      return v.as<float>()[i];
    case DType::bf16:
      return static_cast<double>(v.as<bf16>()[i]);
    case DType::f64:
      return v.as<double>()[i];
    case DType::i32:
      return v.as<int32_t>()[i];
    default:
      return 0;
  }
}

Context reference_context(const Context& context, Stream& stream) {
  return {Backend::ref, &cpu_device(), &stream, context.pool};
}

}  // namespace

Lockstep::Lockstep(BoundGraph& bound, Parameters& parameters)
    : bound_(bound),
      parameters_(parameters),
      reference_parameters_(bound.graph(), cpu_device()),
      stream_(cpu_device().make_stream()),
      reference_(bound.graph(), reference_context(bound.context(), stream_), bound.capacity(),
                 reference_parameters_, Reuse::never) {
  if (!bound.context().device->host_memory()) {
    fail_input("kernels run beside their reference where the host can read the memory: cpu or sim");
  }
}

void Lockstep::load(const BatchView& batch) {
  bound_.load(batch);
  reference_.load(batch);
}

void Lockstep::run() {
  const TensorView weights = parameters_.weights();
  bound_.context().stream->synchronize();
  copy_bytes(reference_parameters_.weights().data, weights.data, weights.bytes());
  for (size_t i = 0; i < bound_.node_count(); ++i) {
    const Node& node = bound_.node(i);
    auto mirror = [&](ValueId id) {
      if (id == no_value) return;
      const TensorView from = bound_.view(id), to = reference_.view(id);
      if (from && to) copy_bytes(to.data, from.data, from.bytes());
    };
    for (ValueId id : node.inputs) mirror(id);
    for (ValueId id : node.outputs) {
      // Gradients are accumulated into: both start from the same sum.
      if (id != no_value && bound_.graph().value(id).role == ValueRole::gradient) mirror(id);
    }
    reference_.run_node(i);
    bound_.run_node(i);
    bound_.context().stream->synchronize();
    for (ValueId id : node.outputs) compare(i, id);
  }
}

void Lockstep::compare(size_t node, ValueId id) {
  if (id == no_value) return;
  const TensorView got = bound_.view(id), want = reference_.view(id);
  if (!got || !want) return;
  const Value& value = bound_.graph().value(id);
  const int64_t plane = got.numel() / value.shape.planes;
  const int64_t live = bound_.live_rows(value.shape) * value.shape.cols;
  double largest = 0;
  for (int64_t p = 0; p < value.shape.planes; ++p) {
    for (int64_t i = 0; i < live; ++i) {
      const double w = std::abs(element(want, p * plane + i));
      if (std::isfinite(w)) largest = std::max(largest, w);
    }
  }
  const double bound = (got.dtype == DType::bf16 ? 4e-2 : 2e-4) * largest + 1e-30;
  for (int64_t p = 0; p < value.shape.planes; ++p) {
    for (int64_t i = 0; i < live; ++i) {
      const double g = element(got, p * plane + i), w = element(want, p * plane + i);
      const bool same =
          std::isfinite(w) ? std::abs(g - w) <= bound : (std::isnan(w) ? std::isnan(g) : g == w);
      RONDO_CHECK(same, "lockstep: node ", node, " (", bound_.node(node).op, ", ",
                  name_of(bound_.context().backend), ") value '", value.name, "' ",
                  to_string(value.shape), " plane ", p, " element ", i, ": got ", g, ", ref ", w,
                  ", allowed difference ", bound);
    }
  }
  ++compared_;
}

}  // namespace rondo
