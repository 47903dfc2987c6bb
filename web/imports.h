// What the module tells the page while it computes: functions of web/src/imports.js, beside those of
// src/system/web/imports.h.
#pragma once

#include <cstddef>

#define DOPPLER_WEB_IMPORT(name) __attribute__((import_module("doppler"), import_name(name)))

namespace doppler::web {

// Loading proceeds: `share`, 0 to 1, is done; `what` is the present step, in words.
DOPPLER_WEB_IMPORT("progress") void progress(double share, const char* what, std::size_t length);
// The module's memory is at its end. Does not return.
DOPPLER_WEB_IMPORT("out_of_memory") void out_of_memory();

}  // namespace doppler::web
