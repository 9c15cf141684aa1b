// Helpers for the rules' bind functions.
#pragma once

#include <utility>

#include "engine/graph/rules.h"
#include "kernels/base/dispatch.h"

namespace rondo {

// A thunk that runs the kernel for `args`, chosen now; checks once that there is one.
template <class Args>
Thunk bound(const Binder& binder, Args args) {
  const Variant& variant = select_variant(binder.context(), Args::op, &args);
  return
      [&variant, args = std::move(args)](const Context& context) { variant.run(context, &args); };
}

// The same memory as one dimension; absent stays absent.
inline TensorView flat(TensorView v) {
  return v ? TensorView(v.data, v.dtype, {v.numel()}) : TensorView{};
}

// The same memory as [planes, rows, cols], also for one plane.
inline TensorView with_planes(TensorView v, int64_t planes) {
  if (!v) return {};
  return {v.data, v.dtype, {planes, v.dim(v.rank - 2), v.dim(v.rank - 1)}};
}

// Labels are classes that input 0 has a column for.
inline int64_t input_columns(const Graph& g, const Node& node) {
  return g.shape(node.inputs.at(0)).cols;
}

inline const char* prefix_of(const Node& node, const char* fallback) {
  for (const auto& [key, item] : node.attributes.items()) {
    if (key == "name") return std::get<std::string>(item).c_str();
  }
  return fallback;
}

}  // namespace rondo
