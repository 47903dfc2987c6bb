// In place of wasi-libc's header of this name: Debian's C library was compiled for one thread and has one
// errno for all, so that modules with threads must not look for one of each thread's. Nothing that their
// threads run asks for it.
#pragma once

#ifdef __cplusplus
extern "C" int errno;
#else
extern int errno;
#endif

#define errno errno
