// The one table of graph ops: each rule of rules_list.h is defined in its own file of this folder.
#include "engine/graph/rules.h"

#include "engine/ops/rules_list.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

const std::vector<const OpRule*>& table() {
  static const std::vector<const OpRule*> rules = {
#define RONDO_RULE(op) &op##_rule(),
      RONDO_RULES
#undef RONDO_RULE
  };
  return rules;
}

// Those of tests.
std::vector<const OpRule*>& extra_rules() {
  static std::vector<const OpRule*> rules;
  return rules;
}

}  // namespace

ExtraRule::ExtraRule(const OpRule& rule) { extra_rules().push_back(&rule); }
ExtraRule::~ExtraRule() { extra_rules().pop_back(); }

const OpRule& rule_of(std::string_view op) {
  for (const OpRule* rule : table()) {
    if (op == rule->op) return *rule;
  }
  for (const OpRule* rule : extra_rules()) {
    if (op == rule->op) return *rule;
  }
  RONDO_CHECK(false, "no rule for op '", op, "'");
}

std::vector<std::string_view> rule_names() {
  std::vector<std::string_view> names;
  for (const OpRule* rule : table()) names.emplace_back(rule->op);
  return names;
}

}  // namespace rondo
