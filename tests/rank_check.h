// Checks for threads that are not the test's own, such as the ranks of run_ranks(): Catch2's
// assertions may be used by one thread at a time.
#pragma once

#include "kernels/base/error.h"

// Throws an Error that names the condition and its place; run_ranks() hands it to the test.
#define RANK_CHECK(...)                                                                      \
  do {                                                                                       \
    if (!(__VA_ARGS__)) {                                                                    \
      throw rondo::Error(rondo::str(__FILE__, ":", __LINE__, ": not true: ", #__VA_ARGS__)); \
    }                                                                                        \
  } while (false)

// That `expression` throws an exception of the type.
#define RANK_CHECK_THROWS_AS(expression, Type)                                                 \
  do {                                                                                         \
    bool thrown = false;                                                                       \
    try {                                                                                      \
      static_cast<void>(expression);                                                           \
    } catch (const Type&) {                                                                    \
      thrown = true;                                                                           \
    }                                                                                          \
    if (!thrown)                                                                               \
      throw rondo::Error(                                                                      \
          rondo::str(__FILE__, ":", __LINE__, ": does not throw ", #Type, ": ", #expression)); \
  } while (false)
