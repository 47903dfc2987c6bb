// The calendar. What is measured uses std::chrono::steady_clock, which is the same everywhere.
#pragma once

#include <ctime>

namespace doppler::system {

// The time now, where the user is and in Greenwich.
std::tm local_time();
std::tm utc_time();

}  // namespace doppler::system
