// The page that the server shows at /, page.html, which the build puts into the program.
#pragma once

#include <string_view>

namespace rondo::serve {

std::string_view page();

}  // namespace rondo::serve
