#include "comm/transport.h"

namespace rondo {

std::string describe_tag(Tag tag) {
  const bool collective = tag >> 63 != 0;
  const Tag group = tag << 1 >> 33;
  const std::string number = str(collective ? "collective " : "tag ", tag & 0xffffffffu);
  return group == 0 ? number : str(number, " of group ", group);
}

}  // namespace rondo
