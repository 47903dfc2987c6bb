// What the page lends the module besides WASI's clock, random numbers and stderr: the functions of
// web/src/imports.js, which say what they do. Paths are normal ones (web_path()); sizes are doubles, since
// JavaScript's numbers are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "system/files.h"

#define DOPPLER_IMPORT(name) __attribute__((import_module("doppler"), import_name(name)))

namespace doppler::system::web {

// 0: nothing has this path; 1: a file; 2: a folder.
DOPPLER_IMPORT("path_kind") std::int32_t path_kind(const char* path, std::size_t length);
// The names in a folder, each followed by a zero: as many bytes as `capacity` holds. Returns the size of all.
DOPPLER_IMPORT("list_folder")
std::size_t list_folder(const char* path, std::size_t length, char* names, std::size_t capacity);
// A number for the file, to be closed; negative: it cannot be opened.
DOPPLER_IMPORT("open_file") std::int32_t open_file(const char* path, std::size_t length);
DOPPLER_IMPORT("file_size") double file_size(std::int32_t file);
// The next bytes of the file: fewer only at its end. Negative: it cannot be read.
DOPPLER_IMPORT("read_file") std::int32_t read_file(std::int32_t file, std::byte* into, std::size_t bytes);
// The same for the bytes from `offset` on.
DOPPLER_IMPORT("read_file_at")
std::int32_t read_file_at(std::int32_t file, double offset, std::byte* into, std::size_t bytes);
DOPPLER_IMPORT("close_file") void close_file(std::int32_t file);
// Keeps a small file of this name, which begins with kKeptFolder, for later loads, too, if the browser lets
// it.
DOPPLER_IMPORT("keep_file")
void keep_file(const char* path, std::size_t length, const char* bytes, std::size_t size);
constexpr std::string_view kKeptFolder = "/kept/";
// Why the module has as many threads as it has, after "because": as much as `capacity` holds. Returns its
// size.
DOPPLER_IMPORT("thread_reason") std::size_t thread_reason(char* into, std::size_t capacity);
// A thread has stopped, for the reason that its worker gave. Does not return.
DOPPLER_IMPORT("thread_stopped") void thread_stopped(const char* why, std::size_t length);
// Seconds by which the user's clocks are ahead of UTC.
DOPPLER_IMPORT("utc_offset") double utc_offset();

// The one spelling of a path: without dots, and without a slash at its end.
inline std::string web_path(const Path& path) {
  const Path normal = path.lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

}  // namespace doppler::system::web
