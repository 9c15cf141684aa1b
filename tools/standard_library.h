// What of the standard library most sources include, for builds that read it once for many of them
// (-Dprecompiled_headers=true, as in tools/quickstart). Sources include what they need themselves:
// other builds know nothing of this file.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>
