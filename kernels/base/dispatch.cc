#include "kernels/base/dispatch.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {
namespace {

struct Preference {
  explicit Preference(std::string_view variant) : name(variant) {}
  std::string name;
  std::atomic<bool> taken = false;
  std::atomic<const Variant*> declined = nullptr;  // which did not accept a call
};

std::map<std::string, Preference, std::less<>>& preferences() {
  static std::map<std::string, Preference, std::less<>> table;
  return table;
}

// Ranks that are threads set the same ones, while others of them may look already; so that a table
// stays once it was there.
std::atomic<const std::vector<KernelChoice>*> choices = nullptr;

bool accepts(const Variant& v, const Context& context, const void* args) {
  return v.accepts == nullptr || v.accepts(context, args);
}

std::span<const Variant> find_op(std::string_view op) {
  for (std::span<const Variant> variants : all_ops()) {
    if (!variants.empty() && op == variants.front().op) return variants;
  }
  return {};
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (std::string_view name : names) text += str(text.empty() ? "" : ", ", name);
  return text;
}

std::string names_of_ops() {
  std::vector<std::string_view> names;
  for (std::span<const Variant> variants : all_ops()) names.push_back(variants.front().op);
  return joined(names);
}

// What a trial chose for such a call, and accepts it; else null.
const Variant* chosen_variant(std::span<const Variant> variants, const Context& context,
                              std::string_view op, const void* args) {
  const std::vector<KernelChoice>* const table = choices.load(std::memory_order_acquire);
  if (table == nullptr || table->empty() || args == nullptr) return nullptr;
  const CallClass class_of = call_class_of(op);
  if (class_of == nullptr) return nullptr;
  const std::string call_class = class_of(args);
  for (const KernelChoice& c : *table) {
    if (c.backend != context.backend || c.op != op || c.call_class != call_class) continue;
    for (const Variant& v : variants) {
      if (v.backend == c.backend && c.variant == v.name && accepts(v, context, args)) return &v;
    }
  }
  return nullptr;
}

}  // namespace

void set_choices(std::vector<KernelChoice> table) {
  static std::mutex mutex;
  static std::deque<std::vector<KernelChoice>> tables;
  const std::lock_guard lock(mutex);
  if (!tables.empty() && tables.back() == table) return;
  choices.store(&tables.emplace_back(std::move(table)), std::memory_order_release);
}

const Variant* default_variant(std::span<const Variant> variants, Chooser choose,
                               const Context& context, const void* args) {
  const auto may_run = [&](const Variant& v) {
    return v.backend == context.backend && v.role == Role::standard && accepts(v, context, args);
  };
  const auto first = [&](std::string_view name) -> const Variant* {  // empty: any
    for (const Variant& v : variants) {
      if ((name.empty() || name == v.name) && may_run(v)) return &v;
    }
    return nullptr;
  };
  std::string_view name;
  if (choose) {
    name = choose(context, args, [&](std::string_view n) { return first(n) != nullptr; });
  }
  return first(name);
}

const Variant& select_variant(const Context& context, std::string_view op, const void* args) {
  const std::span<const Variant> variants = find_op(op);
  if (!preferences().empty()) {
    if (auto it = preferences().find(op); it != preferences().end()) {
      Preference& preference = it->second;
      for (const Variant& v : variants) {
        if (v.backend != context.backend || preference.name != v.name) continue;
        const bool taken = accepts(v, context, args);
        if (taken) preference.taken.store(true, std::memory_order_relaxed);
        if (taken) return v;
        preference.declined.store(&v, std::memory_order_relaxed);
      }
    }
  }
  if (const Variant* v = chosen_variant(variants, context, op, args)) return *v;
  if (const Variant* v = default_variant(variants, chooser_of(op), context, args)) return *v;
  // Not a broken contract: a device may lack a kernel, and the user chose the device.
  fail_input("op ", op, " has no variant for ", name_of(context.backend),
             " that accepts these arguments");
}

void check_context(const Context& context) {
  if (context.backend == Backend::ref) return;
  if (context.backend == Backend::cpu) {
    RONDO_CHECK(context.pool != nullptr, "a context for the CPU without a pool of threads");
    return;
  }
  RONDO_CHECK(context.device != nullptr && context.stream != nullptr, "a context for ",
              name_of(context.backend), " without a device or a stream");
}

void prefer_variant(std::string_view op, std::string_view name, std::optional<Backend> backend) {
  const std::span<const Variant> variants = find_op(op);
  if (variants.empty()) {
    fail_input("no op is called '", op, "'; the ops are ", names_of_ops());
  }
  if (name.empty()) {
    if (auto it = preferences().find(op); it != preferences().end()) preferences().erase(it);
    return;
  }
  std::vector<std::string_view> names;  // that may be preferred, once each
  for (const Variant& v : variants) {
    if (backend && v.backend != *backend) continue;
    if (std::find(names.begin(), names.end(), v.name) == names.end()) names.push_back(v.name);
  }
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fail_input("op '", op, "' has no variant '", name, "'",
               backend ? str(" for ", name_of(*backend)) : "", "; it has ", joined(names));
  }
  preferences().erase(std::string(op));
  preferences().try_emplace(std::string(op), name);
}

std::vector<const Variant*> preferred_in_vain() {
  std::vector<const Variant*> variants;
  for (const auto& [op, preference] : preferences()) {
    if (!preference.taken && preference.declined) variants.push_back(preference.declined);
  }
  return variants;
}

}  // namespace rondo
