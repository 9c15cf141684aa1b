// Runs every node twice, with its kernel and with `ref`, and stops at the first difference.
//
// The debugging tool behind --lockstep-ref: the reference starts each node from the very inputs the
// kernel saw, so a difference is made by that node alone. Slow, and needs the memory of all values.
#pragma once

#include <string>

#include "engine/graph/bound_graph.h"

namespace rondo {

class Lockstep {
 public:
  // `bound` must outlive this object. Throws InputError when the host cannot read its device's
  // memory.
  explicit Lockstep(BoundGraph& bound, Parameters& parameters);

  // As BoundGraph::load and BoundGraph::run, for both. run() throws Error naming node, variant,
  // value, element, both numbers and the bound: |got - want| <= 2e-4 (f32) or 4e-2 (bf16) of the
  // largest |want| of the value.
  void load(const BatchView& batch);
  void run();
  int64_t values_compared() const { return compared_; }

 private:
  void compare(size_t node, ValueId id);
  BoundGraph& bound_;
  Parameters& parameters_;
  Parameters reference_parameters_;
  Stream stream_;
  BoundGraph reference_;
  int64_t compared_ = 0;
};

}  // namespace rondo
