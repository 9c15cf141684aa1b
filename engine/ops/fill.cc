// fill: a constant (attribute value); only in backward passes, where a gradient is zero.
#include "engine/ops/bind.h"
#include "engine/ops/rules_list.h"
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

const OpRule& fill_rule() {
  static const OpRule rule{
      .op = "fill", .bind = bind, .time = {.kind = TimeKind::rows}, .work = operand_work};
  return rule;
}

}  // namespace rondo
