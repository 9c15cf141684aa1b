// Counts the allocations of a test program (operator new is replaced).
#pragma once

#include <cstdint>

int64_t allocation_count();
