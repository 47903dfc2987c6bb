// The calendar time. Durations are measured with std::chrono::steady_clock, which is the same everywhere.
#pragma once

#include <ctime>

namespace doppler::system {

// The current time, in the user's time zone and in UTC.
std::tm local_time();
std::tm utc_time();

}  // namespace doppler::system
