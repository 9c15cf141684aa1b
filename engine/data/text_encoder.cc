#include "engine/data/text_encoder.h"

#include <algorithm>
#include <locale>
#include <sstream>

namespace rondo {

std::string describe(std::span<const UnknownText> unknown, size_t limit) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (size_t i = 0; i < std::min(limit, unknown.size()); ++i) {
    out << (i ? ", " : "") << unknown[i].what;
    if (unknown[i].count > 1) out << " " << unknown[i].count << " times";
  }
  if (unknown.size() > limit) out << " and " << unknown.size() - limit << " more";
  return out.str();
}

}  // namespace rondo
