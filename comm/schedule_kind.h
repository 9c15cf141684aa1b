// The kinds of pipeline schedules (comm/schedule.h), for configurations.
#pragma once

#include <cstdint>
#include <string>

namespace rondo {

enum class ScheduleKind : uint8_t { one_f_one_b, zero_bubble };
const char* name_of(ScheduleKind kind);  // "1f1b", "zero_bubble"
// The kind named so. Throws InputError that lists the names.
ScheduleKind schedule_kind(const std::string& name);

}  // namespace rondo
