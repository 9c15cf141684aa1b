// Which variant of an op runs. The build writes the table of ops (kernels/ops.cc.in).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/op.h"

namespace rondo {

// One list of variants per op, in the order of their headers' names.
std::span<const std::span<const Variant>> all_ops();

// How an op chooses among its variants of context.backend by itself, where nothing was preferred by
// name. `may_run(name)`: a standard variant of that name accepts `args`. Returns the name of one
// that may run; empty: the order of the list decides.
using MayRun = std::function<bool(std::string_view name)>;
using Chooser = std::string_view (*)(const Context& context, const void* args,
                                     const MayRun& may_run);
// Null for ops that leave it to the order; kernels/ops.cc.in.
Chooser chooser_of(std::string_view op);

// Calls of an op that run alike on a device, and that a trial there decides for together
// (engine/trial/trial.h): a short text, as "bf16 h512 d2 n32". Empty: such calls are not tried.
using CallClass = std::string (*)(const void* args);
// Null for ops that are not tried; kernels/ops.cc.in.
CallClass call_class_of(std::string_view op);

// What a trial found: which variant such calls run.
struct KernelChoice {
  Backend backend = Backend::cuda;
  std::string op, call_class, variant;
  bool operator==(const KernelChoice&) const = default;
};
// In the place of all choices so far. Process-wide; call it before kernels run that it is about.
// Threads may set choices at once.
void set_choices(std::vector<KernelChoice> choices);

// The variant that would run: the one a prefer_variant() call named, if it accepts `args`; else the
// one that a choice names for such calls, likewise; else of the standard ones of context.backend
// that accept them the one that the op chooses, or the first. Throws Error when there is none.
const Variant& select_variant(const Context& context, std::string_view op, const void* args);

// The last of these by itself, without preferences and choices: null when there is none.
const Variant* default_variant(std::span<const Variant> variants, Chooser choose,
                               const Context& context, const void* args);

// Prefers variant `name` for `op` from now on, on every backend that has it, where it accepts the
// arguments (what --kernels= does; an empty name restores the default). Throws InputError for an
// unknown op, and a name that none of its variants has, or none of `backend`'s when that is given.
// Process-wide; call it before kernels run.
void prefer_variant(std::string_view op, std::string_view name,
                    std::optional<Backend> backend = std::nullopt);

// Preferred variants that have declined every call so far, and one at the least.
std::vector<const Variant*> preferred_in_vain();

// Throws Error where the context lacks what its backend's kernels use: on CPUs the pool, on devices
// the device and the stream.
void check_context(const Context& context);

template <class Args>
void run(const Context& context, const Args& args) {
  check_context(context);
  select_variant(context, Args::op, &args).run(context, &args);
}

}  // namespace rondo
