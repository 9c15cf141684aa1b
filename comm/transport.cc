#include "comm/transport.h"

namespace rondo {

std::string describe_tag(Tag tag) {
  const bool collective = tag >> 63 != 0;
  const bool check = collective && tag << 1 >> 63 != 0;
  const Tag group = tag << 2 >> 34;
  const std::string number = str(check        ? "check of collective "
                                 : collective ? "collective "
                                              : "tag ",
                                 tag & 0xffffffffu);
  return group == 0 ? number : str(number, " of group ", group);
}

Work Transport::recv_add(int, Tag, std::span<std::byte>, Element, Deadline) {
  RONDO_CHECK(false, "this transport does not add");
}

}  // namespace rondo
