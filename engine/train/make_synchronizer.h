// How the ranks of a run work together, from its configuration.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/config/config.h"
#include "engine/reduce/ranks.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

// Called by all ranks. `ballot`: the numbers that travel with updates. `say` gets messages for the
// user. Borrows ranks' group and the session. Throws InputError for what the ranks at hand
// cannot do.
std::unique_ptr<Synchronizer> make_synchronizer(const Config& config, const Ranks& ranks,
                                                Session& session, size_t ballot,
                                                const std::function<void(const std::string&)>& say);

}  // namespace rondo
