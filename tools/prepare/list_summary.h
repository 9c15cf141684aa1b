// What `rondo prepare` says of data that it has listed.
#pragma once

#include "tools/corpus/examination/list_corpus.h"

namespace rondo {

// Tables on standard output: the parts, how they were made, the characters of the texts, what was
// left out. `kind`: of all utterances.
void print_summary(const DataSummary& summary, InputKind kind);

}  // namespace rondo
