// fill: a constant (attribute value); only in backward passes, where a gradient is zero.
#include "engine/ops/bind.h"
#include "kernels/cast/cast.h"

namespace rondo {
namespace {

Thunk bind(const Binder& b, const Node& node) {
  FillArgs a;
  a.y = flat(b.output(node, 0));
  a.value = node.attributes.real("value");
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> fill_rules() {
  static const OpRule rules[] = {
      {.op = "fill", .bind = bind, .time = {.kind = TimeKind::rows}, .work = operand_work}};
  return rules;
}

}  // namespace rondo
