// A Store in the memory of this process, for ranks that are its threads.
#pragma once

#include <memory>

#include "comm/store/store.h"

namespace rondo {

class MemoryTable;

// What the stores of several ranks share.
std::shared_ptr<MemoryTable> make_memory_table();

// A rank's own store on it.
std::unique_ptr<Store> make_memory_store(std::shared_ptr<MemoryTable> table);

}  // namespace rondo
