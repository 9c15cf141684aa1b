// What the rules of convolutions share: attributes kernel, stride, dilation and left are along
// time, from and to are levels.
#pragma once

#include "engine/ops/bind.h"

namespace rondo {

inline int level_of(const Node& node, const char* key) {
  return static_cast<int>(node.attributes.integer(key));
}

// Frames before or behind a part: [frames, N, cols], also for one frame.
inline TensorView edge(const Binder& b, ValueId id) {
  const TensorView v = id == no_value ? TensorView{} : b.view(id);
  return v ? with_planes(v, b.graph().shape(id).planes) : v;
}

template <class Args>
void set_layouts(const Binder& b, const Node& node, Args& a) {
  a.from = b.layout(level_of(node, "from"));
  a.to = b.layout(level_of(node, "to"));
  a.workspace = b.workspace();
}

inline Halo convolution_halo(const Node& node) {
  const int64_t span =
      node.attributes.integer("dilation") * (node.attributes.integer("kernel") - 1);
  const int64_t left = node.attributes.integer("left");
  return {static_cast<int32_t>(left), static_cast<int32_t>(span - left)};
}

}  // namespace rondo
